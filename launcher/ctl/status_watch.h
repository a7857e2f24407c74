// SPDX-License-Identifier: Apache-2.0
// `ddpctl status --watch`: polls the service, and shows the status on a terminal or as lines.
#pragma once

#include <memory>
#include <string>

#include "launcher/ctl/ctl_options.h"
#include "rendezvous/client/session_client.h"

namespace ddprun {

// Runs until q, Ctrl-C or SIGTERM; if stdout is no terminal, also until the service is gone. The
// exit code: 1 if the service was never reached.
int WatchStatus(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel);

}  // namespace ddprun
