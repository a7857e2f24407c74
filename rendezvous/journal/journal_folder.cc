// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/journal_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ddprun {
namespace {

absl::Status MakeFolder(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("the journal's folder has an empty name");
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return JournalError("cannot make the journal's folder", path, errno);
  }
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) return JournalError("cannot open", path, errno);
  if (S_ISDIR(about.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the journal needs a folder, and ", path, " is a file; name another"));
}

absl::StatusOr<OwnedFd> OpenOwn(const std::string& path) {
  OwnedFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) return JournalError("cannot write the journal's file", path, errno);
  return fd;
}

std::string FirstLine(int fd) {
  char text[32] = {};
  const ssize_t count = pread(fd, text, sizeof text - 1, 0);
  const std::string line(text, count > 0 ? static_cast<std::size_t>(count) : 0);
  return line.substr(0, line.find('\n'));
}

absl::StatusOr<OwnedFd> Lock(const std::string& folder) {
  const std::string path = folder + "/lock";
  auto lock = OpenOwn(path);
  if (!lock.ok()) return lock;
  if (flock(lock->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return JournalError("cannot lock", path, errno);
    const std::string pid = FirstLine(lock->get());
    return absl::AlreadyExistsError(
        absl::StrCat("the journal in ", folder, " belongs to a service that runs (process ",
                     pid.empty() ? "unknown" : pid, "); stop it, or name another folder"));
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(lock->get(), 0) != 0 ||
      pwrite(lock->get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return JournalError("cannot write the journal's lock", path, errno);
  }
  return lock;
}

}  // namespace

absl::Status JournalError(absl::string_view what, const std::string& path, int error_number) {
  absl::string_view advice;
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      advice = "; free some space there and start the service again";
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      advice = "; give this user the right to write there, or name another folder";
      break;
    case ENOENT:
    case ENOTDIR:
      advice = "; name a folder that is there";
      break;
    case EIO:
      advice = "; check that disk";
      break;
    default:
      break;
  }
  return absl::Status(absl::ErrnoToStatusCode(error_number),
                      absl::StrCat(what, " ", path, ": ", std::strerror(error_number), advice));
}

JournalFolder::JournalFolder(std::string path, OwnedFd lock, OwnedFd synced)
    : path_(std::move(path)), lock_(std::move(lock)), synced_(std::move(synced)) {}

absl::StatusOr<JournalFolder> JournalFolder::Open(const std::string& path) {
  if (absl::Status status = MakeFolder(path); !status.ok()) return status;
  auto lock = Lock(path);
  if (!lock.ok()) return lock.status();
  auto synced = OpenOwn(path + "/synced");
  if (!synced.ok()) return synced.status();
  return JournalFolder(path, *std::move(lock), *std::move(synced));
}

std::string JournalFolder::PathOf(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

absl::Status JournalFolder::Sync() const {
  const OwnedFd fd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0 && fsync(fd.get()) == 0) return absl::OkStatus();
  return JournalError("cannot flush to the disk the folder", path_, errno);
}

std::uint64_t JournalFolder::synced_record() const {
  std::uint64_t number = 0;
  return absl::SimpleAtoi(FirstLine(synced_.get()), &number) ? number : 0;
}

// The text has a fixed length: one write replaces the previous number. A failure is harmless.
void JournalFolder::NoteSyncedRecord(std::uint64_t number) const {
  const std::string text = absl::StrFormat("%020d\n", number);
  if (pwrite(synced_.get(), text.data(), text.size(), 0) < 0) return;
}

}  // namespace ddprun
