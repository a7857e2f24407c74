// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/oom_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"

namespace ddprun {
namespace {

constexpr char kMemory[] = "memory";  // the controller
// A v1 limit above this means no limit.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

std::optional<std::int64_t> ToBytes(absl::string_view text) {
  std::int64_t bytes = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &bytes)) return std::nullopt;
  return bytes;
}

// "anon-rss:1234kB" of the kernel's log.
std::int64_t KilobytesAfter(absl::string_view line, absl::string_view name) {
  const std::size_t at = line.find(name);
  if (at == absl::string_view::npos) return 0;
  return std::strtoll(std::string(line.substr(at + name.size())).c_str(), nullptr, 10) * 1024;
}

}  // namespace

std::optional<std::int64_t> ParseOomKills(const std::string& text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "oom_kill ")) return ToBytes(line);
  }
  return std::nullopt;
}

std::optional<LoggedKill> ParseKernelLog(const std::string& line) {
  // oom-kill:constraint=CONSTRAINT_MEMCG,...,oom_memcg=/job,task_memcg=/job/a,task=python3,pid=7,...
  if (absl::StrContains(line, "oom-kill:constraint=")) {
    LoggedKill kill;
    for (absl::string_view field : absl::StrSplit(line, ',')) {
      if (absl::ConsumePrefix(&field, "oom_memcg=")) kill.limited_cgroup = std::string(field);
      if (absl::ConsumePrefix(&field, "pid=") && !absl::SimpleAtoi(field, &kill.pid)) kill.pid = 0;
    }
    if (kill.pid <= 0) return std::nullopt;
    return kill;
  }
  constexpr absl::string_view kKilled = "Killed process ";
  const std::size_t at = line.find(kKilled.data());
  if (at == std::string::npos || !absl::StrContains(absl::AsciiStrToLower(line), "out of memory")) {
    return std::nullopt;
  }
  LoggedKill kill;
  kill.pid = static_cast<pid_t>(std::strtol(line.c_str() + at + kKilled.size(), nullptr, 10));
  if (kill.pid <= 0) return std::nullopt;
  for (const char* part : {"anon-rss:", "file-rss:", "shmem-rss:"}) {
    kill.resident_bytes += KilobytesAfter(line, part);
  }
  return kill;
}

// ---- The watch

OomWatch::OomWatch(std::string root)
    : root_(std::move(root)),
      kernel_log_(open((root_ + "/dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  // Skips older records.
  if (kernel_log_.valid() && root_.empty()) lseek(kernel_log_.get(), 0, SEEK_END);
}

void OomWatch::Begin() {
  logged_.clear();
  if (const auto place = ReadCgroup(root_, "self", kMemory))
    kills_seen_[place->path] = KillsAt(*place);
}

std::optional<OomKill> OomWatch::Explain(pid_t pid) {
  std::optional<CgroupFolder> place = ReadCgroup(root_, std::to_string(pid), kMemory);
  // v1 forgets the cgroup of an ending process: it was most likely this process's.
  if (place && !place->v2 && place->path == place->top) place = ReadCgroup(root_, "self", kMemory);
  // Each counted kill explains one death.
  std::int64_t* seen = place ? &kills_seen_[place->path] : nullptr;
  const bool counted = place && KillsAt(*place) > *seen;
  ReadKernelLog();
  const auto logged = logged_.find(pid);
  if (logged == logged_.end() && !counted) return std::nullopt;
  if (counted) ++*seen;
  OomKill kill;
  // The limit may be that of an ancestor, which the kernel's log names.
  if (logged != logged_.end() && place && !logged->second.limited_cgroup.empty())
    place = ReadCgroupNamed(root_, logged->second.limited_cgroup, place->v2, kMemory);
  if (place) FillFromCgroup(*place, kill);
  if (!kill.of_cgroup && logged != logged_.end()) kill.used_bytes = logged->second.resident_bytes;
  return kill;
}

std::int64_t OomWatch::KillsAt(const CgroupFolder& place) const {
  const char* file = place.v2 ? "/memory.events" : "/memory.oom_control";
  return ParseOomKills(ReadSmallFile(place.path + file)).value_or(0);
}

// The limit that was reached may be that of an ancestor. If no limit was reached, the machine ran
// out of memory.
void OomWatch::FillFromCgroup(const CgroupFolder& place, OomKill& kill) const {
  const auto number = [](const std::string& path) { return ToBytes(ReadSmallFile(path)); };
  for (const std::string& folder : place.AndAbove()) {
    const auto limit = number(folder + (place.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    auto used = number(folder + (place.v2 ? "/memory.peak" : "/memory.max_usage_in_bytes"));
    if (!used && place.v2) used = number(folder + "/memory.current");
    if (limit && *limit < kNoLimit && used.value_or(0) >= *limit - *limit / 8) {
      kill = {*used, *limit, /*of_cgroup=*/true};
      return;
    }
  }
  for (absl::string_view line : absl::StrSplit(ReadSmallFile(root_ + "/proc/meminfo"), '\n')) {
    if (absl::ConsumePrefix(&line, "MemTotal:")) kill.limit_bytes = KilobytesAfter(line, "");
  }
}

void OomWatch::ReadKernelLog() {
  std::string record(kKernelLogRecordBytes, '\0');
  for (int i = 0; kernel_log_.valid() && i < kKernelLogRecordsMax; ++i) {
    // One record per call. EPIPE: records were overwritten; the next call returns the oldest one
    // left.
    const ssize_t size = read(kernel_log_.get(), record.data(), record.size());
    if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (size <= 0) return;
    for (const std::string& line : std::vector<std::string>(
             absl::StrSplit(record.substr(0, static_cast<std::size_t>(size)), '\n'))) {
      const auto kill = ParseKernelLog(line);
      if (!kill) continue;
      LoggedKill& whole = logged_[kill->pid];
      whole.pid = kill->pid;
      whole.resident_bytes = std::max(whole.resident_bytes, kill->resident_bytes);
      if (!kill->limited_cgroup.empty()) whole.limited_cgroup = kill->limited_cgroup;
    }
  }
}

}  // namespace ddprun
