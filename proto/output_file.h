// SPDX-License-Identifier: Apache-2.0
// How files are written, in every room. Two rules:
// - A path that a user named may be a link, a device, a FIFO or a stream of this process. A link is
//   followed, and what is not a regular file is written to as it is, never replaced. In a folder
//   like /tmp (sticky, writable by others) a link of another user is refused, as the kernel does
//   with fs.protected_symlinks.
// - A name that this project makes itself is never followed: it is created with O_EXCL and
//   O_NOFOLLOW, and a link in its place is replaced or refused.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun {

// How long a FIFO or a terminal may take no byte.
inline constexpr std::chrono::seconds kOutputTimeout{5};

struct OutputTarget {
  std::string path;  // a regular file, or none yet: put another one in its place
  int fd = -1;  // or something that is no regular file, open for writing; the caller's to close
};

// Where the links of a user's path lead. PERMISSION_DENIED, UNAVAILABLE: a reason without the path,
// such as "No such file or directory".
absl::StatusOr<std::string> FollowLinks(const std::string& path);

// Where bytes for `path` go. A link there is to be replaced: FollowLinks() comes first for a path
// that a user named. UNAVAILABLE: a reason, as above.
absl::StatusOr<OutputTarget> OpenOutput(const std::string& path);

// Whether a user's path can be written to, as far as that is known before anything is written: its
// folder exists and is writable. The reason, as above.
absl::Status CheckOutput(const std::string& path);

// N for "/dev/fd/N", "/proc/self/fd/N" and /dev/stdin, stdout, stderr; -1 for other paths. A stream
// of this process is used as it is: it may be a socket, which cannot be opened, or a file that
// others write to at their own place.
int OwnDescriptor(const std::string& path);

// A new file at a name of our own. A link or a file that is there, left by a process that was
// killed, is removed first. -1 and errno.
int CreateOwnFile(const std::string& path, mode_t mode);

// All of it. Something that is no regular file may take kOutputTimeout for each piece. 0, or errno.
int WriteAll(int fd, const char* data, std::size_t size);

// Puts the file in place whole or not at all, over one that is there; `path` is a user's. The error
// is a sentence with the path and what is wrong.
absl::Status WriteWholeFile(const std::string& path, const std::string& text, mode_t mode = 0644);

}  // namespace ddprun
