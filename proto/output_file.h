// SPDX-License-Identifier: Apache-2.0
// Writing files, for all rooms. Two rules:
// - A path that a user named may be a link, a device, a FIFO or a stream of this process. A link is
//   followed, and what is not a regular file is written to as it is, never replaced. In a folder
//   like /tmp (sticky, writable by others) a link of another user is rejected, as the kernel does
//   with fs.protected_symlinks.
// - A name that ddprun chooses itself is never followed: it is created with O_EXCL and O_NOFOLLOW,
// and
//   a link in its place is replaced or rejected.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun {

// How long a FIFO or a terminal may accept no byte.
inline constexpr std::chrono::seconds kOutputTimeout{5};

struct OutputTarget {
  std::string path;  // a regular file, or none yet: replace it
  int fd = -1;       // or something else, open for writing; the caller closes it
};

// The end of a user's path after all links. PERMISSION_DENIED, UNAVAILABLE: a reason without the
// path, such as "No such file or directory".
absl::StatusOr<std::string> FollowLinks(const std::string& path);

// Opens `path` for writing, or returns the path to replace. A link there will be replaced: call
// FollowLinks() first for a path that a user named. UNAVAILABLE: a reason, as above.
absl::StatusOr<OutputTarget> OpenOutput(const std::string& path);

// Whether a user's path can be written, as far as that is known before writing: its folder exists
// and is writable. The error is a reason, as above.
absl::Status CheckOutput(const std::string& path);

// N for "/dev/fd/N", "/proc/self/fd/N" and /dev/stdin, stdout, stderr; -1 for other paths. A stream
// of this process is used as it is: it may be a socket, which cannot be opened, or a file that
// other processes write at their own offset.
int OwnDescriptor(const std::string& path);

// Creates a file at a name that ddprun chose. Removes a link or a file that is there, left by a
// process that was killed. Returns -1 and sets errno on failure.
int CreateOwnFile(const std::string& path, mode_t mode);

// Writes everything. What is not a regular file may take kOutputTimeout for each piece. Returns 0
// or errno.
int WriteAll(int fd, const char* data, std::size_t size);

// Writes the file completely or not at all, replacing an existing one; `path` is a user's. The
// error is a sentence with the path and the reason.
absl::Status WriteWholeFile(const std::string& path, const std::string& text, mode_t mode = 0644);

// While it exists, a signal that a system call of this thread causes (SIGPIPE of a write to a pipe
// without a reader, SIGXFSZ of a file at its size limit) is not delivered: the call fails with its
// error alone. Nothing changes for other threads. Of one thread.
class HeldBackSignal {
 public:
  explicit HeldBackSignal(int number) {
    sigemptyset(&signal_);
    sigaddset(&signal_, number);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, number) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~HeldBackSignal() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldBackSignal(const HeldBackSignal&) = delete;
  HeldBackSignal& operator=(const HeldBackSignal&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace ddprun
