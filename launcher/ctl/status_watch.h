// SPDX-License-Identifier: Apache-2.0
// `ddpctl status --watch`: asks periodically, and shows the answer on a terminal or as lines.
#pragma once

#include <memory>
#include <string>

#include "launcher/ctl/status_options.h"
#include "rendezvous/client/session_client.h"

namespace ddprun {

// Until q, Ctrl-C or SIGTERM; where stdout is no terminal, also until the service is gone. The exit
// code: 1 if the service was never reached.
int WatchStatus(const StatusOptions& options, const std::shared_ptr<ServiceChannel>& channel);

}  // namespace ddprun
