// SPDX-License-Identifier: Apache-2.0
#include "launcher/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "rendezvous/owned_fd.h"

namespace ddprun {
namespace {

absl::Status Failed(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path, const std::string& text) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  OwnedFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return Failed(path);
  absl::Status status;
  for (std::size_t written = 0; written < text.size() && status.ok();) {
    const ssize_t n = write(fd.get(), text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      status = Failed(path);
    } else {
      written += static_cast<std::size_t>(n);
    }
  }
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = Failed(path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace ddprun
