// SPDX-License-Identifier: Apache-2.0
// Signal masks; ddprun has no signal handlers.
#pragma once

#include <csignal>
#include <vector>

namespace ddprun {

// Those that were not ignored when ddprun was started: `nohup ddprun ...` keeps running when its
// terminal closes. Read before anything changes a disposition.
sigset_t NotIgnored(const std::vector<int>& numbers);

// `named` (those of --signals-to-handle, as far as they are not ignored), and all other signals
// that would end this process by default and are not in `taken`: an end by them is reported by
// their own name, and not as that of a process that was killed. Faults are left out.
sigset_t WithOtherEndSignals(const sigset_t& named, const sigset_t& taken);

sigset_t Union(const sigset_t& a, const sigset_t& b);

sigset_t WithChildSignal(sigset_t signals);

// A ddprun that was started with SIGCHLD ignored would never see its child processes end, nor would
// its workers. Called first in main().
void RestoreChildSignal();

// Blocks these and SIGCHLD in this thread and those it starts, ignores SIGPIPE and SIGXFSZ (a file
// at the limit of `ulimit -f` is a full disk), and returns the mask of before, which is the
// workers'.
sigset_t BlockSignals(const sigset_t& signals);

}  // namespace ddprun
