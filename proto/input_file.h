// SPDX-License-Identifier: Apache-2.0
// Reading files that a user named: settings, lists of hosts, certificates. They may be pipes, such
// as `<(...)` and /dev/stdin.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace ddprun {

// How long to wait for data from a pipe or a FIFO. A terminal has no limit: a person types.
inline constexpr std::chrono::seconds kInputTimeout{30};

struct InputFile {
  std::string text;
  bool is_regular = true;  // can be read again
};

// Reads the whole file into one allocation: a growing string would leave copies of a secret behind.
// NOT_FOUND, PERMISSION_DENIED, DEADLINE_EXCEEDED, or INVALID_ARGUMENT if it has more than
// `bytes_max`: a reason without the path, such as "Is a directory".
absl::StatusOr<InputFile> ReadInput(const std::string& path, std::size_t bytes_max);

// Reads a file of our own, of a data set, or of /proc and /sys, into memory of the file's size. Does
// not wait for a FIFO: what is not a regular file is INVALID_ARGUMENT. Other errors as above.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, std::size_t bytes_max);

}  // namespace ddprun
