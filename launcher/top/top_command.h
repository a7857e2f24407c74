// SPDX-License-Identifier: Apache-2.0
// `ddpctl top`, and `ddprun status --watch` on a terminal.
#pragma once

#include <memory>

#include "launcher/ctl/ctl_options.h"
#include "launcher/ctl/watch_signals.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

// Shows the screen until q, Ctrl-C or SIGTERM, and then ends the process; on a terminal that has
// none it says so and prints lines, as WatchStatus(). The exit code: 1 if the service was never
// reached.
int ShowTop(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
            WatchSignals& signals);

}  // namespace ddprun
