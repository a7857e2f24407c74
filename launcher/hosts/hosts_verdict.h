// SPDX-License-Identifier: Apache-2.0
// How a run that was started with -H ended, from what its nodes reported and how they ended. Pure.
#pragma once

#include <string>

#include "launcher/hosts/hosts_head.h"

namespace ddprun {

// The node reported the end of a run that succeeded, was let go (`ddpctl drain`) or never told to
// begin. An exit code
// of 0 without either proves nothing: a wrapper script, another program or a broken ddprun has it
// too.
bool EndedWell(const HeadNode& node);

// For all nodes that have ended, or have been given up. Exit code 0 only if the node that hosts the
// service reported success, no node reported another one, and as many nodes as the run needs
// reported it (or were in the run and lost their connection to the head at its end).
EndHead VerdictOfNodes(const HeadState& state, const HeadConfig& config);

// With the exit code, as it is shown.
std::string FailureText(const std::string& sentence, int exit_code);

// The head got this signal.
std::string InterruptedText(int signal);

}  // namespace ddprun
