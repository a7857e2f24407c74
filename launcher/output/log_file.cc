// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/output/log_rotation.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {

absl::Status LogFile::Open() {
  if (fd_ >= 0) return absl::OkStatus();
  const std::string folder = std::filesystem::path(path_).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make the log folder ", folder, ": ", error.message()));
  }
  if (!replaces_) return OpenToWrite();
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
    return absl::UnavailableError(
        absl::StrCat("cannot remove an earlier run's ", path_, ": ", ErrnoText(errno)));
  }
  return absl::OkStatus();
}

absl::Status LogFile::OpenToWrite() {
  if (fd_ >= 0) return absl::OkStatus();
  // Appends: a second run with the same id must not destroy the first one's log. A symbolic link is
  // an error.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
  file_ = OwnedFd(open(path_.c_str(), kFlags, 0644));
  if (!file_.valid()) {
    return absl::UnavailableError(
        absl::StrCat("cannot open the log file ", path_, ": ", ErrnoText(errno)));
  }
  fd_ = file_.get();
  struct stat info {};
  size_ = fstat(fd_, &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
  at_line_start_ = true;
  if (rotation_.bytes > 0) FindAside();
  return absl::OkStatus();
}

void LogFile::FindAside() {
  const std::filesystem::path path(path_);
  const std::string stem = path.filename().string() + ".";
  int first = 0;
  int last = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), error)) {
    const std::string name = entry.path().filename();
    int number = 0;
    if (name.size() <= stem.size() || name.compare(0, stem.size(), stem) != 0 ||
        !absl::SimpleAtoi(name.substr(stem.size()), &number) || number < 1) {
      continue;
    }
    first = first == 0 ? number : std::min(first, number);
    last = std::max(last, number);
  }
  aside_first_ = std::max(first, 1);
  aside_next_ = last + 1;
}

absl::Status LogFile::Write(std::string_view bytes, std::size_t& written) {
  written = 0;
  if (absl::Status status = Open(); !status.ok()) return status;
  replaces_ = false;
  while (written < bytes.size()) {
    const std::string_view rest = bytes.substr(written);
    const RotationStep step = NextRotationStep(rest, size_, at_line_start_, rotation_.bytes);
    if (step.rotate_first) PutAside();
    if (absl::Status status = OpenToWrite(); !status.ok()) return status;
    std::size_t count = 0;
    const absl::Status status = WriteAll(rest.substr(0, step.bytes), count);
    written += count;
    size_ += count;
    if (count > 0) at_line_start_ = rest[count - 1] == '\n';
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status LogFile::WriteAll(std::string_view bytes, std::size_t& written) {
  while (written < bytes.size()) {
    const ssize_t count = write(fd_, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot write ", path_, ": ", ErrnoText(count < 0 ? errno : ENOSPC)));
    }
    written += static_cast<std::size_t>(count);
  }
  return absl::OkStatus();
}

void LogFile::PutAside() {
  // Skips names that another process has used since: no file may be overwritten.
  std::string aside;
  do {
    aside = absl::StrCat(path_, ".", aside_next_++);
  } while (access(aside.c_str(), F_OK) == 0);
  if (rename(path_.c_str(), aside.c_str()) != 0) {
    rotation_.bytes = 0;  // one large file is better than none
    return;
  }
  file_.Reset();
  fd_ = -1;
  if (rotation_.files == 0) return;
  const int kept_first = aside_next_ - (rotation_.files - 1);
  for (; aside_first_ < kept_first; ++aside_first_)
    unlink(absl::StrCat(path_, ".", aside_first_).c_str());
}

}  // namespace ddprun
