// SPDX-License-Identifier: Apache-2.0
// The file in which a worker says why it failed, at the path in TORCHELASTIC_ERROR_FILE. The format
// is torchelastic's (torch/distributed/elastic/multiprocessing/errors/error_handler.py), so that
// Python programs decorated with @record are understood and our workers are understood by torchrun.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun {

// Longest message that is written or read; the rest is cut.
inline constexpr std::size_t kFailureMessageBytesMax = 16 * 1024;

struct FailureRecord {
  std::string message;    // one sentence or several lines
  std::string traceback;  // of @record: message.extraInfo.py_callstack, its last part; may be empty
  // What a launcher adds in a record of its own: the worker's exit code, or its signal's number
  // below zero. Not read.
  std::optional<int> error_code = std::nullopt;
};

// Writes {"message": {"message": TEXT, "extraInfo": {"timestamp": SECONDS}}} to a temporary file
// beside `path` and renames it, so that a reader never sees half of it.
absl::Status WriteFailureRecord(const std::string& path, const FailureRecord& record,
                                long long timestamp_seconds);

// Of such a file, also where "message" is a plain string. NOT_FOUND if there is no file,
// INVALID_ARGUMENT if it is not of that format, or no file at all: the caller then goes on without
// it.
absl::StatusOr<FailureRecord> ReadFailureRecord(const std::string& path);

}  // namespace ddprun
