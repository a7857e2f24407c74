// SPDX-License-Identifier: Apache-2.0
#include "proto/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/output_file.h"

namespace ddprun {
namespace {

absl::Status Reason(int error) {
  const char* text = std::strerror(error);
  return error == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
}

// Descriptors are closed by the caller. A stream of this process may be a socket, which cannot be
// opened.
int OpenInput(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const int own = OwnDescriptor(path);
  if (fd >= 0 || errno != ENXIO || own < 0) return fd;
  return fcntl(own, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

// Waits until there is something to read, or the end. A FIFO that nothing has opened for writing
// yet is waited for too.
absl::Status AwaitInput(int fd) {
  const int timeout_ms =
      isatty(fd) != 0 ? -1 : static_cast<int>(std::chrono::milliseconds(kInputTimeout).count());
  pollfd ready{fd, POLLIN, 0};
  int count = 0;
  do {
    count = poll(&ready, 1, timeout_ms);
  } while (count < 0 && errno == EINTR);
  if (count > 0) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("nothing was written to it for ", kInputTimeout.count(), " s"));
}

// Into `text`, which may have the size that the caller expects and one byte more, and grows up to
// `bytes_max`.
absl::Status ReadAll(int fd, bool is_regular, std::size_t bytes_max, std::string& text) {
  constexpr std::size_t kGrowth = 4096;
  std::size_t size = 0;
  while (size <= bytes_max) {
    if (size == text.size()) text.resize(std::min(2 * size + kGrowth, bytes_max + 1));
    if (!is_regular) {
      if (absl::Status status = AwaitInput(fd); !status.ok()) return status;
    }
    const ssize_t count = read(fd, text.data() + size, text.size() - size);
    if (count < 0 && (errno == EINTR || (errno == EAGAIN && !is_regular))) continue;
    if (count < 0) return Reason(errno);
    if (count == 0) {
      text.resize(size);
      return absl::OkStatus();
    }
    size += static_cast<std::size_t>(count);
  }
  return absl::InvalidArgumentError(absl::StrCat("it has more than ", bytes_max, " bytes"));
}

}  // namespace

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, std::size_t bytes_max) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return Reason(errno);
  struct stat info {};
  std::string text;
  absl::Status status = absl::InvalidArgumentError("it is not a regular file");
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    text.resize(std::min(static_cast<std::size_t>(info.st_size), bytes_max) + 1);  // /proc: 1
    status = ReadAll(fd, /*is_regular=*/true, bytes_max, text);
  }
  close(fd);
  if (!status.ok()) return status;
  return text;
}

absl::StatusOr<InputFile> ReadInput(const std::string& path, std::size_t bytes_max) {
  const int fd = OpenInput(path);
  if (fd < 0) return Reason(errno);
  struct stat info {};
  InputFile file;
  file.is_regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const absl::Status status =
      S_ISDIR(info.st_mode) ? Reason(EISDIR) : ReadAll(fd, file.is_regular, bytes_max, file.text);
  close(fd);
  if (!status.ok()) return status;
  return file;
}

}  // namespace ddprun
