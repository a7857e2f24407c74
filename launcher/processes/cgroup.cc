// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/cgroup.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/cgroup_folder.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kPrefix[] = "ddprun-";

bool Write(const std::string& path, absl::string_view text) {
  const OwnedFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file.valid() &&
         write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::vector<std::string> FoldersIn(const std::string& path) {
  std::vector<std::string> folders;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_directory(error)) folders.push_back(entry->path().string());
  }
  return folders;
}

// Absent: the folder does not exist, or another process holds the lock.
std::optional<OwnedFd> Lock(const std::string& path) {
  OwnedFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || flock(folder.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  return folder;
}

bool IsPopulated(const std::string& path) {
  return absl::StrContains(ReadSmallFile(path + "/cgroup.events"), "populated 1");
}

// The kernel reports when the last process has ended. Bounded, because a process that hangs in the
// kernel would delay every start.
void WaitUntilEmpty(const std::string& path) {
  const Clock::time_point deadline = Clock::now() + kLastSweepTimeout;
  const OwnedFd events(open((path + "/cgroup.events").c_str(), O_RDONLY | O_CLOEXEC));
  while (events.valid() && IsPopulated(path)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return;
    char seen[256];
    [[maybe_unused]] const ssize_t size = pread(events.get(), seen, sizeof(seen), 0);
    if (!IsPopulated(path)) return;
    pollfd change{.fd = events.get(), .events = POLLPRI, .revents = 0};
    poll(&change, 1, static_cast<int>(left));
  }
}

void EndAbandoned(const std::string& parent) {
  for (const std::string& path : FoldersIn(parent)) {
    if (!absl::StartsWith(std::filesystem::path(path).filename().string(), kPrefix)) continue;
    const std::optional<OwnedFd> lock = Lock(path);
    if (!lock.has_value()) continue;
    KillCgroup(path);
    WaitUntilEmpty(path);
    RemoveCgroup(path);
  }
}

}  // namespace

std::string OwnCgroup() {
  const std::optional<CgroupFolder> own = ReadCgroup("", "self", /*controller=*/"");
  return own.has_value() ? own->path : "";
}

RunCgroup RunCgroup::Make(const std::string& parent, const std::string& name) {
  RunCgroup made;
  // Useless without cgroup.kill (before Linux 5.14).
  if (parent.empty() || access(parent.c_str(), W_OK) != 0) return made;
  EndAbandoned(parent);
  const std::string path = absl::StrCat(parent, "/", kPrefix, name);
  if (mkdir(path.c_str(), 0755) != 0) return made;
  std::optional<OwnedFd> lock = Lock(path);
  // Another ddprun may have considered it abandoned and removed it.
  if (!lock.has_value() || access((path + "/cgroup.kill").c_str(), W_OK) != 0) {
    rmdir(path.c_str());
    return made;
  }
  if (absl::StrContains(ReadSmallFile(path + "/cgroup.controllers"), "memory"))
    Write(path + "/cgroup.subtree_control", "+memory");
  made.path_ = path;
  made.lock_ = *std::move(lock);
  return made;
}

std::string RunCgroup::MakeRound(RoundId round) const {
  if (!exists()) return "";
  std::string path = absl::StrCat(path_, "/round_", ToNumber(round));
  return mkdir(path.c_str(), 0755) == 0 ? path : "";
}

void RunCgroup::Kill() const { KillCgroup(path_); }

void RunCgroup::Remove() const { RemoveCgroup(path_); }

void KillCgroup(const std::string& path) {
  if (!path.empty()) Write(path + "/cgroup.kill", "1");
}

OwnedFd WorkerCgroup::Open() const {
  return OwnedFd(path_.empty() ? -1 : open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

void WorkerCgroup::Kill() {
  if (!path_.empty()) killed_.push_back(std::exchange(path_, ""));
  for (const std::string& path : killed_) KillCgroup(path);
}

void WorkerCgroup::Remove(bool keep) {
  if (!keep && !path_.empty()) killed_.push_back(std::exchange(path_, ""));
  for (const std::string& path : std::exchange(killed_, {})) RemoveCgroup(path);
}

void RemoveCgroup(const std::string& path) {
  if (path.empty()) return;
  for (const std::string& folder : FoldersIn(path)) RemoveCgroup(folder);
  rmdir(path.c_str());
}

}  // namespace ddprun
