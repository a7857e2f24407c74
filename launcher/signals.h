// SPDX-License-Identifier: Apache-2.0
// Which signals tell ddprun to end, and how a process learns of them without a handler.
#pragma once

#include <csignal>

namespace ddprun {

// SIGINT, SIGTERM, SIGHUP and SIGQUIT, but for those that were ignored when ddprun was started:
// `nohup ddprun ...` goes on when its terminal goes. Read before anything changes a disposition.
sigset_t EndSignals();

// Blocks EndSignals() and SIGCHLD in this thread and those it starts, ignores SIGPIPE, and returns
// the mask of before, which is the workers'.
sigset_t BlockSignals(const sigset_t& end_signals);

}  // namespace ddprun
