// SPDX-License-Identifier: Apache-2.0
// The result of a run that was started with -H, from the reports and ends of its nodes. Pure.
#pragma once

#include <string>

#include "launcher/hosts/hosts_head.h"

namespace ddprun {

// True if the node reported the end of a run that succeeded, was drained (`ddpctl drain`) or was
// never started. An exit code of 0 alone proves nothing: a wrapper script, another program or a
// broken ddprun may return it too.
bool EndedWell(const HeadNode& node);

// The result when all nodes have ended or have been given up. Exit code 0 only if the node that
// hosts the service reported success, no node reported a different end, and as many nodes as the
// run needs reported it (or were in the run and lost their connection to the head at its end).
EndHead VerdictOfNodes(const HeadState& state, const HeadConfig& config);

// With the exit code, as printed.
std::string FailureText(const std::string& sentence, int exit_code);

// The head received this signal.
std::string InterruptedText(int signal);

}  // namespace ddprun
