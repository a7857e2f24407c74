// SPDX-License-Identifier: Apache-2.0
// A node of `ddprun doctor`: collects its facts, exchanges them with the other nodes through a
// rendezvous, tests the network between them, and shows the same table as they do.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/node/control_pipe.h"
#include "launcher/options/options.h"
#include "rendezvous/security/token.h"

namespace ddprun {

struct DoctorCall {
  Options options;  // with `doctor`
  std::string own_folder;
  std::optional<absl::StatusOr<Token>> token_variable;
  // Only of a node that the head of a run has started.
  std::optional<ControlPipe> control_pipe = std::nullopt;
  std::string host = {};  // the name that the head uses; empty: the machine's name
};

// Runs the checkup and returns the exit code.
int RunDoctor(DoctorCall call);

}  // namespace ddprun
