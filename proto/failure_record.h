// SPDX-License-Identifier: Apache-2.0
// The file in which a worker records why it failed, at the path in TORCHELASTIC_ERROR_FILE. The
// format is torchelastic's (torch/distributed/elastic/multiprocessing/errors/error_handler.py):
// Python programs decorated with @record write it, and torchrun reads that of our workers.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun {

// Longer messages are cut when they are written or read.
inline constexpr std::size_t kFailureMessageBytesMax = 16 * 1024;

struct FailureRecord {
  std::string message;    // one sentence or several lines
  std::string traceback;  // of @record: message.extraInfo.py_callstack, its last part; may be empty
  // Added by a launcher in its own record: the worker's exit code, or its negative signal number.
  // Not read.
  std::optional<int> error_code = std::nullopt;
};

// Writes {"message": {"message": TEXT, "extraInfo": {"timestamp": SECONDS}}} to a temporary file
// beside `path` and renames it, so that a reader never sees half of it.
absl::Status WriteFailureRecord(const std::string& path, const FailureRecord& record,
                                long long timestamp_seconds);

// Reads such a file; "message" may also be a plain string. NOT_FOUND if there is no file,
// INVALID_ARGUMENT if it is not a regular file or not of that format.
absl::StatusOr<FailureRecord> ReadFailureRecord(const std::string& path);

}  // namespace ddprun
