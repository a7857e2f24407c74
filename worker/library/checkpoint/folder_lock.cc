// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>
#include <utility>

#include "proto/json_text.h"
#include "worker/library/base/host_name.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr char kLockFile[] = "training.lock";
constexpr std::size_t kHolderBytesMax = 4096;
// A lock has no deadline.
constexpr std::chrono::milliseconds kTryInterval{50};

struct Holder {
  std::string run;
  std::string words;  // "process 123 on host a of run job7"
};

// The content of the lock file, which is written after the lock is taken, so it may be empty.
Holder ReadHolder(int fd) {
  std::string text(kHolderBytesMax, '\0');
  const ssize_t size = pread(fd, text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Holder holder{.run = "", .words = "another process"};
  if (!json.is_object() || !json.contains("pid") || !json.at("pid").is_number_integer())
    return holder;
  const auto text_of = [&json](const char* key) {
    return json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : "";
  };
  holder.run = text_of("run");
  holder.words = "process " + JsonText(json.at("pid")) + " on host " + text_of("host");
  if (!holder.run.empty()) holder.words += " of run " + holder.run;
  return holder;
}

void WriteHolder(int fd, const std::string& run) {
  const std::string text =
      JsonText(Json{{"run", run}, {"host", HostName()}, {"pid", getpid()}}) + "\n";
  // For information only: on a full disk the name is lost, not the lock.
  [[maybe_unused]] const int cut = ftruncate(fd, 0);
  [[maybe_unused]] const ssize_t written = pwrite(fd, text.data(), text.size(), 0);
}

struct LockFile {
  int fd = -1;
  bool writable = true;
};

// Others may read the file, as the umask says: it names the holder, and a user who may not write it
// still sees that it is locked.
LockFile OpenLock(const std::string& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0666);
  if (fd >= 0 || errno != EACCES) return {.fd = fd};
  return {.fd = open(path.c_str(), O_RDONLY | kFlags), .writable = false};
}

// 0: locked. EWOULDBLOCK: another training has it. EBUSY: a process that only reads it keeps us
// from locking it. Else why there can be no lock.
int TryLock(const LockFile& file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (file.writable && fcntl(file.fd, F_OFD_SETLK, &whole) == 0) return 0;
  if (file.writable && errno != EAGAIN && errno != EACCES) return errno;
  // A training has a write lock, the only kind that is in the way of a read lock.
  whole.l_type = F_RDLCK;
  if (fcntl(file.fd, F_OFD_GETLK, &whole) != 0) return errno;
  if (whole.l_type != F_UNLCK) return EWOULDBLOCK;
  return file.writable ? EBUSY : EACCES;
}

int LockWithin(const LockFile& file, std::chrono::milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  // The first EBUSY may be of a training that has ended meanwhile.
  for (bool first = true;;) {
    const int error = TryLock(file);
    const bool again = error == EBUSY && std::exchange(first, false);
    if (!again && error != EWOULDBLOCK && error != EINTR) return error;
    if (!again && Clock::now() >= deadline) return EWOULDBLOCK;
    std::this_thread::sleep_for(kTryInterval);
  }
}

std::string SayUnlocked(const std::string& path, int error) {
  const std::string reason =
      error == EBUSY ? "a process that reads it holds a read lock" : std::strerror(error);
  const std::string next = error == EBUSY    ? "; end that process, which lslocks names"
                           : error == EACCES ? "; give this user the right to write to it"
                                             : "";
  return path + " cannot be locked: " + reason +
         "; a second training in this folder would not be noticed" + next;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const Options& options, const Notify& notify) {
  const std::string path = std::filesystem::path(folder) / kLockFile;
  const LockFile file = OpenLock(path);
  fd_ = file.fd;
  const auto patience = options.restarted ? options.patience : std::chrono::milliseconds(0);
  const int error = fd_ < 0 ? errno : LockWithin(file, patience);
  if (error == 0) {
    held_ = true;
    WriteHolder(fd_, options.run);
    return;
  }
  if (error != EWOULDBLOCK) {
    notify(SayUnlocked(path, error));
    return;
  }
  const Holder holder = ReadHolder(fd_);
  if (options.restarted && holder.run == options.run) {
    notify(path + " is still locked by " + holder.words +
           ", which has not ended; training goes on without the lock");
    return;
  }
  close(fd_);
  throw std::runtime_error(folder + " is in use by another training (" + holder.words +
                           "); wait for its end, or choose another folder");
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace ddprun
