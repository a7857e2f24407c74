// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {

std::string ReadUpTo(const std::string& path, std::size_t bytes_max) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  std::string text;
  std::array<char, 1 << 16> part;
  while (fd.valid() && text.size() < bytes_max) {
    const ssize_t count = read(fd.get(), part.data(), part.size());
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

std::string ReadSmallFile(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[4096];
  const ssize_t size = fd.valid() ? read(fd.get(), buffer, sizeof(buffer)) : 0;
  return size > 0 ? std::string(buffer, static_cast<std::size_t>(size)) : "";
}

}  // namespace ddprun
