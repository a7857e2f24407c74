// SPDX-License-Identifier: Apache-2.0
// Explains failures between the head and a host from the output of ssh and shells, as a sentence
// with the next move. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/outcome.h"
#include "launcher/hosts/hosts_plan.h"

namespace ddprun {

// `words`: output before the Hello of ddprun on the host, oldest first. `attempt`: the index of the
// transport's command that was run.
std::string WhyNotStarted(const std::string& host, const Transport& transport, std::size_t attempt,
                          const Outcome& outcome, const std::vector<std::string>& words);

// The node ran, and its transport ended without a verdict of the node.
std::string WhyLost(const std::string& host, TransportKind kind, const Outcome& outcome,
                    const std::vector<std::string>& words);

// The node ended with exit code 0 without having reported that the run was finished. `words`: its
// output before.
std::string WhyUnproven(const std::string& host, const std::vector<std::string>& words);

// ddprun on the host has another version of the protocol.
std::string WhyRefused(const std::string& host, const Hello& hello);

// The exit code of a node from the end of its transport: a failure of ssh itself counts as 1.
int NodeExitCode(TransportKind kind, const Outcome& outcome);

}  // namespace ddprun
