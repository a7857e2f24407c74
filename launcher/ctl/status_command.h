// SPDX-License-Identifier: Apache-2.0
// `ddprun status`: asks a rendezvous service once, and prints the answer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/ctl/status_options.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

// A connection with a certificate of somebody who asks about that run, or about all if `run_id` is
// empty, and who is no node of it; without one, to a socket.
absl::StatusOr<std::shared_ptr<ServiceChannel>> OpenServiceChannel(const ServiceAddress& service,
                                                                   const Security& security,
                                                                   const std::string& run_id,
                                                                   const std::string& what);

// The text for stdout. Errors: as GetStatus() (rendezvous/client/status_client.h).
absl::StatusOr<std::string> AskForStatus(const StatusOptions& options, const Security& security);

}  // namespace ddprun
