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

// A connection with an operator's certificate for that run, or for all runs if `run_id` is empty;
// to a socket without one.
absl::StatusOr<std::shared_ptr<ServiceChannel>> OpenServiceChannel(const ServiceAddress& service,
                                                                   const Security& security,
                                                                   const std::string& run_id,
                                                                   const std::string& what);

// The text for stdout. Errors: as GetStatus() (rendezvous/client/control_client.h).
absl::StatusOr<std::string> AskForStatus(const StatusOptions& options, const Security& security);

}  // namespace ddprun
