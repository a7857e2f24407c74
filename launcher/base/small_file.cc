// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

std::string ReadSmallFile(const std::string& path, std::size_t bytes_max) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  std::string text;
  std::array<char, 1 << 16> part;
  while (fd.valid() && text.size() < bytes_max) {
    const std::size_t wanted = std::min(part.size(), bytes_max - text.size());
    const ssize_t count = read(fd.get(), part.data(), wanted);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

std::optional<std::int64_t> NumberAfter(const std::string& text, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    std::int64_t number = 0;
    if (words.size() >= 2 && words[0] == name && absl::SimpleAtoi(words[1], &number)) return number;
  }
  return std::nullopt;
}

}  // namespace ddprun
