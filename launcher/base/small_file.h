// SPDX-License-Identifier: Apache-2.0
// Reads files of /proc and /sys, and the beginning of others, where a file that cannot be read is
// like an empty one. Files that a user named are read by proto/input_file.h, which says what is
// wrong with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// More than any file of /proc and /sys that is read here.
inline constexpr std::size_t kSmallFileBytesMax = 1u << 20;

// The first `bytes_max` bytes; "" if the file cannot be read. Never waits for a pipe.
std::string ReadSmallFile(const std::string& path, std::size_t bytes_max = kSmallFileBytesMax);

// The number in the first line with that name: "MemAvailable:  123 kB", "inactive_file 123".
std::optional<std::int64_t> NumberAfter(const std::string& text, absl::string_view name);

}  // namespace ddprun
