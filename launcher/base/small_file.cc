// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {

std::string ReadSmallFile(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[4096];
  const ssize_t size = fd.valid() ? read(fd.get(), buffer, sizeof(buffer)) : 0;
  return size > 0 ? std::string(buffer, static_cast<std::size_t>(size)) : "";
}

}  // namespace ddprun
