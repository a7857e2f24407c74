// SPDX-License-Identifier: Apache-2.0
#include "proto/output_file.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

// As the kernel's own limit.
constexpr int kLinksMax = 40;

absl::Status Reason(int error) { return absl::UnavailableError(std::strerror(error)); }

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

// As fs.protected_symlinks has it.
bool IsForeignLink(const std::string& path, const struct stat& link) {
  struct stat folder {};
  if (link.st_uid == geteuid() || stat(FolderOf(path).c_str(), &folder) != 0) return false;
  const bool shared = (folder.st_mode & S_ISVTX) != 0 && (folder.st_mode & S_IWOTH) != 0;
  return shared && link.st_uid != folder.st_uid;
}

absl::Status CannotWrite(const std::string& path, absl::string_view reason) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", reason));
}

// Writes and closes. 0, or errno.
int WriteAndClose(int fd, const std::string& text) {
  int error = WriteAll(fd, text.data(), text.size());
  if (close(fd) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

int OwnDescriptor(const std::string& path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  absl::string_view number = path;
  int fd = -1;
  const bool has_prefix =
      absl::ConsumePrefix(&number, "/dev/fd/") || absl::ConsumePrefix(&number, "/proc/self/fd/");
  return has_prefix && absl::SimpleAtoi(number, &fd) && fd >= 0 ? fd : -1;
}

absl::StatusOr<std::string> FollowLinks(const std::string& path) {
  if (OwnDescriptor(path) >= 0) return path;
  std::string end = path;
  for (int links = 0; links < kLinksMax; ++links) {
    struct stat info {};
    if (lstat(end.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return end;
    if (IsForeignLink(end, info)) {
      return absl::PermissionDeniedError(
          absl::StrCat(end, " is a link of another user in a folder that others can write to"));
    }
    char target[PATH_MAX];
    const ssize_t size = readlink(end.c_str(), target, sizeof target);
    if (size <= 0) return Reason(errno);
    const std::string text(target, static_cast<std::size_t>(size));
    end = std::filesystem::path(end).parent_path() / text;
  }
  return Reason(ELOOP);
}

absl::StatusOr<OutputTarget> OpenOutput(const std::string& path) {
  if (const int own = OwnDescriptor(path); own >= 0) {
    const int fd = fcntl(own, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (fd < 0) return Reason(errno);
    return OutputTarget{.path = "", .fd = fd};
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISLNK(info.st_mode))
    return OutputTarget{.path = path};
  if (S_ISDIR(info.st_mode)) return Reason(EISDIR);
  const int fd = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW);
  if (fd >= 0) return OutputTarget{.path = "", .fd = fd};
  if (errno == ENXIO && S_ISFIFO(info.st_mode))
    return absl::UnavailableError("it is a FIFO that nothing reads from");
  return Reason(errno);
}

absl::Status CheckOutput(const std::string& path) {
  if (OwnDescriptor(path) >= 0) return absl::OkStatus();
  const absl::StatusOr<std::string> end = FollowLinks(path);
  if (!end.ok()) return end.status();
  struct stat info {};
  if (lstat(end->c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) return Reason(EISDIR);
    return access(end->c_str(), W_OK) == 0 ? absl::OkStatus() : Reason(errno);
  }
  const std::string folder = FolderOf(*end);
  if (stat(folder.c_str(), &info) != 0) {
    return absl::UnavailableError(
        absl::StrCat("its folder ", folder, " cannot be used: ", std::strerror(errno)));
  }
  if (!S_ISDIR(info.st_mode)) return Reason(ENOTDIR);
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("its folder ", folder, " cannot be written: ", std::strerror(errno)));
}

int CreateOwnFile(const std::string& path, mode_t mode) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int fd = open(path.c_str(), kFlags, mode);
  if (fd >= 0 || errno != EEXIST) return fd;
  if (unlink(path.c_str()) != 0) return -1;
  return open(path.c_str(), kFlags, mode);
}

int WriteAll(int fd, const char* data, std::size_t size) {
  struct stat info {};
  const bool is_regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  // A pipe that is ready accepts PIPE_BUF bytes at once, even if its descriptor blocks.
  const std::size_t piece_max = is_regular ? size : std::size_t{PIPE_BUF};
  // A pipe without a reader is an error, and not the end of the process.
  const HeldBackSignal no_sigpipe(SIGPIPE);
  while (size > 0) {
    if (!is_regular) {
      pollfd ready{fd, POLLOUT, 0};
      const int timeout_ms = static_cast<int>(std::chrono::milliseconds(kOutputTimeout).count());
      const int count = poll(&ready, 1, timeout_ms);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return count == 0 ? ETIMEDOUT : errno;
    }
    const ssize_t written = write(fd, data, std::min(size, piece_max));
    if (written < 0 && (errno == EINTR || (errno == EAGAIN && !is_regular))) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    data += written;
    size -= static_cast<std::size_t>(written);
  }
  return 0;
}

absl::Status WriteWholeFile(const std::string& path, const std::string& text, mode_t mode) {
  const absl::StatusOr<std::string> end = FollowLinks(path);
  if (!end.ok()) return CannotWrite(path, end.status().message());
  const absl::StatusOr<OutputTarget> target = OpenOutput(*end);
  if (!target.ok()) return CannotWrite(path, target.status().message());
  if (target->fd >= 0) {
    const int error = WriteAndClose(target->fd, text);
    return error == 0 ? absl::OkStatus() : CannotWrite(path, std::strerror(error));
  }
  const std::string temporary = absl::StrCat(target->path, ".", getpid(), ".tmp");
  const int fd = CreateOwnFile(temporary, mode);
  if (fd < 0) return CannotWrite(path, std::strerror(errno));
  int error = WriteAndClose(fd, text);
  if (error == 0 && rename(temporary.c_str(), target->path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  unlink(temporary.c_str());
  return CannotWrite(path, std::strerror(error));
}

}  // namespace ddprun
