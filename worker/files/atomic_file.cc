// SPDX-License-Identifier: Apache-2.0
#include "worker/files/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace ddprun {

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(path_ + ".tmp." + std::to_string(getpid())) {
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) Fail("create", errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void AtomicFile::Write(const void* data, std::size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0 && write_error_ == 0) {
    const ssize_t written = write(fd_, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      write_error_ = errno;
      return;
    }
    next += written;
    size -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::Commit() {
  if (write_error_ != 0) Fail("write", write_error_);
  // The order matters: first the bytes, then the name, then the folder that holds the name.
  if (fsync(fd_) != 0) Fail("sync", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) Fail("rename", errno);
  close(std::exchange(fd_, -1));
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const int folder_fd =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd < 0) return;
  fsync(folder_fd);  // some file systems cannot; the rename itself has happened
  close(folder_fd);
}

void AtomicFile::Fail(const char* what, int error) const {
  throw std::runtime_error("cannot " + std::string(what) + " " + path_ + ": " +
                           std::strerror(error));
}

}  // namespace ddprun
