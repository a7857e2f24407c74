// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ddprun {

AppendFile::~AppendFile() {
  if (fd_ >= 0) close(fd_);
}

int AppendFile::Open(const std::string& path, std::uint64_t kept_bytes) {
  path_ = path;
  // Not blocking: to open a FIFO would wait for a reader, for ever.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  fd_ = open(path.c_str(), kFlags, 0666);
  if (fd_ < 0) return errno == ENXIO ? ESPIPE : errno;  // nothing reads from it
  struct stat status {};
  if (fstat(fd_, &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) {
    close(std::exchange(fd_, -1));
    return ESPIPE;
  }
  const auto present = static_cast<std::uint64_t>(status.st_size);
  size_ = std::min(kept_bytes, present);
  if (size_ == present) return 0;
  return ftruncate(fd_, static_cast<off_t>(size_)) == 0 ? 0 : errno;
}

void AppendFile::Add(std::string_view record) {
  if (fd_ >= 0 && pending_.size() + record.size() <= kPendingBytes) pending_ += record;
}

int AppendFile::Flush() {
  std::size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t written = pwrite(fd_, pending_.data() + done, pending_.size() - done,
                                   static_cast<off_t>(size_ + done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // Readers must not see the part of a record that did fit. If even this fails, the next flush
      // overwrites it.
      [[maybe_unused]] const int cut = ftruncate(fd_, static_cast<off_t>(size_));
      return error;
    }
    done += static_cast<std::size_t>(written);
  }
  size_ += done;
  pending_.clear();
  return 0;
}

}  // namespace ddprun
