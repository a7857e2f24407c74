// SPDX-License-Identifier: Apache-2.0
// `ddprun doctor`: facts of this node, the other nodes' by way of a rendezvous, the ways between
// them, and one table that all nodes show.
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
  // Of a node that the head of a run has started.
  std::optional<ControlPipe> control_pipe;
  std::string host;  // as the head knows it; empty: the machine's name
};

// Until all is said. The exit code.
int RunDoctor(DoctorCall call);

}  // namespace ddprun
