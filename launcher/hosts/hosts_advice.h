// SPDX-License-Identifier: Apache-2.0
// Explains what went wrong between the head and a host, from the output of ssh and shells, as a
// sentence with the next move. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/outcome.h"
#include "launcher/hosts/hosts_plan.h"

namespace ddprun {

// `words`: output before the Hello of ddprun on the host, oldest first. `attempt`: which of the
// transport's commands was run.
std::string WhyNotStarted(const std::string& host, const Transport& transport, std::size_t attempt,
                          const Outcome& outcome, const std::vector<std::string>& words);

// The node ran, and its transport ended without its verdict.
std::string WhyLost(const std::string& host, TransportKind kind, const Outcome& outcome,
                    const std::vector<std::string>& words);

// The node ended with exit code 0, and had not reported that the run was finished. `words`: what
// it printed before.
std::string WhyUnproven(const std::string& host, const std::vector<std::string>& words);

// ddprun there has another version of the protocol.
std::string WhyRefused(const std::string& host, const Hello& hello);

// The exit code of a node by its transport's end: ssh's own failure is no verdict.
int NodeExitCode(TransportKind kind, const Outcome& outcome);

}  // namespace ddprun
