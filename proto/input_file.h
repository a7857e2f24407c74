// SPDX-License-Identifier: Apache-2.0
// Files that a user named, to be read: settings, lists of hosts, certificates. They may be pipes,
// as `<(...)` and /dev/stdin are.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace ddprun {

// How long a pipe or a FIFO may say nothing. A terminal may for ever: a person types.
inline constexpr std::chrono::seconds kInputTimeout{30};

struct InputFile {
  std::string text;
  bool is_regular = true;  // can be read once more
};

// All of it, in one piece of memory: a secret in it is not left behind by a text that grows.
// NOT_FOUND, PERMISSION_DENIED, DEADLINE_EXCEEDED, or INVALID_ARGUMENT if it has more than
// `bytes_max`: a reason without the path, such as "Is a directory".
absl::StatusOr<InputFile> ReadInput(const std::string& path, std::size_t bytes_max);

// A file of our own, or of /proc and /sys: what is no regular file is INVALID_ARGUMENT and is never
// waited for. Other errors as above.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, std::size_t bytes_max);

}  // namespace ddprun
