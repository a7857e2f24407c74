// SPDX-License-Identifier: Apache-2.0
#include "worker/library/files/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "proto/output_file.h"

namespace ddprun {

namespace {

bool IsPlain(const std::string& path) {
  struct stat info {};
  if (OwnDescriptor(path) >= 0) return false;
  return lstat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISLNK(info.st_mode);
}

std::string TemporaryOf(const std::string& path) {
  return path + ".tmp." + std::to_string(getpid());
}

// The names in it are on the disk when it returns. Some file systems cannot do that.
void SyncFolder(const std::filesystem::path& folder) {
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

std::error_code MakeFolder(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return {};
  if (const std::error_code above = MakeFolder(path.parent_path())) return above;
  if (std::filesystem::create_directory(path, error)) SyncFolder(path.parent_path());
  // A file is there.
  if (error == std::errc::file_exists) return std::make_error_code(std::errc::not_a_directory);
  return error;
}

std::string UserPath(const std::string& path) {
  absl::StatusOr<std::string> end = FollowLinks(path);
  if (end.ok()) return *std::move(end);
  throw std::runtime_error("cannot write " + path + ": " + std::string(end.status().message()));
}

// Without a temporary file what is at `path` is written to as it is.
AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(IsPlain(path_) ? TemporaryOf(path_) : "") {
  if (!temporary_.empty()) {
    fd_ = CreateOwnFile(temporary_, 0666);
    if (fd_ < 0) Fail("create", errno);
    return;
  }
  const absl::StatusOr<OutputTarget> target = OpenOutput(path_);
  if (!target.ok())
    throw std::runtime_error("cannot write " + path_ + ": " +
                             std::string(target.status().message()));
  fd_ = target->fd;
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::Write(const void* data, std::size_t size) {
  if (write_error_ == 0) write_error_ = WriteAll(fd_, static_cast<const char*>(data), size);
}

void AtomicFile::Commit() {
  if (write_error_ != 0) Fail("write", write_error_);
  if (temporary_.empty()) {
    if (close(std::exchange(fd_, -1)) != 0) Fail("write", errno);
    return;
  }
  // The order matters: first the bytes, then the name, then the folder that holds the name.
  if (fsync(fd_) != 0) Fail("sync", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) Fail("rename", errno);
  close(std::exchange(fd_, -1));
  SyncFolder(std::filesystem::path(path_).parent_path());
}

void AtomicFile::Fail(const char* what, int error) const {
  throw std::runtime_error("cannot " + std::string(what) + " " + path_ + ": " +
                           std::strerror(error));
}

bool LinkFile(const std::string& from, const std::string& to) {
  const std::string temporary = TemporaryOf(to);
  unlink(temporary.c_str());
  if (link(from.c_str(), temporary.c_str()) != 0) return false;
  // A rename between two names of one file does nothing and succeeds.
  const bool renamed = rename(temporary.c_str(), to.c_str()) == 0;
  unlink(temporary.c_str());
  if (renamed) SyncFolder(std::filesystem::path(to).parent_path());
  return renamed;
}

void WriteFile(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

}  // namespace ddprun
