// SPDX-License-Identifier: Apache-2.0
// `ddprun status`: asks a rendezvous service once, and prints the answer.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/status_options.h"
#include "rendezvous/credentials.h"

namespace ddprun {

// `arguments` after "status". The exit code. Needs no warden: it starts nothing.
int StatusCommand(const std::vector<std::string>& arguments);

// The text for stdout. Errors: as GetStatus() (rendezvous/status_client.h).
absl::StatusOr<std::string> AskForStatus(const StatusOptions& options, const Security& security);

}  // namespace ddprun
