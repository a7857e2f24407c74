// SPDX-License-Identifier: Apache-2.0
// A dump of PyTorch's flight recorder: the pickle that ProcessGroupNCCL writes to a file when a
// collective times out, and when it is asked to (flight_recorder.h). Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/collective.h"

namespace ddprun {

// Where the process that wrote `bytes` is, as it would report it itself (progress_message.h). Older
// entries than `since_ns`, of the machine's clock, belong to an earlier round. INVALID_ARGUMENT: a
// damaged dump, or one of a format that is not known; a sentence.
absl::StatusOr<CollectivePlace> ParseFlightDump(std::string_view bytes, std::int64_t since_ns);

}  // namespace ddprun
