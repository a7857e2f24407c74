// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "worker/base/host_name.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr char kLockFile[] = "training.lock";
constexpr std::size_t kHolderBytesMax = 4096;
// flock() has no deadline.
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
  holder.words = "process " + json.at("pid").dump() + " on host " + text_of("host");
  if (!holder.run.empty()) holder.words += " of run " + holder.run;
  return holder;
}

void WriteHolder(int fd, const std::string& run) {
  const std::string text =
      Json{{"run", run}, {"host", HostName()}, {"pid", getpid()}}.dump() + "\n";
  // For information only: on a full disk the name is lost, not the lock.
  [[maybe_unused]] const int cut = ftruncate(fd, 0);
  [[maybe_unused]] const ssize_t written = pwrite(fd, text.data(), text.size(), 0);
}

int OpenLock(const std::string& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0666);
  // Another user's file in a shared folder: read access is enough for a lock.
  return fd < 0 && errno == EACCES ? open(path.c_str(), O_RDONLY | kFlags) : fd;
}

// 0, EWOULDBLOCK when the time is over, or why there can be no lock.
int LockWithin(int fd, std::chrono::milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  for (;;) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK && errno != EINTR) return errno;
    if (Clock::now() >= deadline) return EWOULDBLOCK;
    std::this_thread::sleep_for(kTryInterval);
  }
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const Options& options, const Notify& notify) {
  const std::string path = std::filesystem::path(folder) / kLockFile;
  fd_ = OpenLock(path);
  const int error = fd_ < 0 ? errno
                            : LockWithin(fd_, options.restarted ? options.patience
                                                                : std::chrono::milliseconds(0));
  if (error == 0) {
    held_ = true;
    WriteHolder(fd_, options.run);
    return;
  }
  if (error != EWOULDBLOCK) {
    notify(path + " cannot be locked: " + std::strerror(error) +
           "; a second training in this folder would not be noticed");
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
                           "); wait for its end, or choose another --output-dir or "
                           "--checkpoint-dir");
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace ddprun
