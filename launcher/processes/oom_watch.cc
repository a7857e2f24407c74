// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/oom_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

// Above this a v1 limit means that there is none.
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

std::optional<MemoryCgroup> ParseCgroups(const std::string& proc_cgroup) {
  std::optional<MemoryCgroup> found;
  for (const absl::string_view line : absl::StrSplit(proc_cgroup, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::string path(absl::StripSuffix(fields[2], " (deleted)"));
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    // Where v1 has the memory controller, v2 has none.
    if (std::count(controllers.begin(), controllers.end(), "memory") > 0) {
      return MemoryCgroup{false, path};
    }
    if (fields[0] == "0" && fields[1].empty()) found = MemoryCgroup{true, path};
  }
  return found;
}

std::string CgroupFolder(const std::string& mountinfo, const MemoryCgroup& cgroup,
                         std::string* mount_point) {
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    // ID PARENT DEVICE ROOT MOUNT-POINT OPTIONS ... - TYPE SOURCE SUPER-OPTIONS
    const std::vector<std::string> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) continue;
    const std::vector<std::string> left = absl::StrSplit(halves[0], ' ');
    const std::vector<std::string> right = absl::StrSplit(halves[1], ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const std::vector<std::string> options = absl::StrSplit(right[2], ',');
    const bool fits = cgroup.v2 ? right[0] == "cgroup2"
                                : right[0] == "cgroup" &&
                                      std::count(options.begin(), options.end(), "memory") > 0;
    if (!fits) continue;
    absl::string_view below = cgroup.path;
    if (left[3] != "/" && !absl::ConsumePrefix(&below, left[3])) continue;
    *mount_point = left[4];
    return below == "/" ? left[4] : absl::StrCat(left[4], below);
  }
  return "";
}

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
  // What was logged before is no concern of this run.
  if (kernel_log_.valid() && root_.empty()) lseek(kernel_log_.get(), 0, SEEK_END);
}

void OomWatch::Begin() {
  logged_.clear();
  if (const std::optional<Place> place = PlaceOf("self")) {
    kills_seen_[place->folder] = KillsAt(*place);
  }
}

std::optional<OomKill> OomWatch::Explain(pid_t pid) {
  std::optional<Place> place = PlaceOf(std::to_string(pid));
  // v1 forgets the cgroup of a process that ends: it was most likely ours.
  if (place && !place->v2 && place->folder == place->top) place = PlaceOf("self");
  // Each kill that was counted explains one death.
  std::int64_t* seen = place ? &kills_seen_[place->folder] : nullptr;
  const bool counted = place && KillsAt(*place) > *seen;
  ReadKernelLog();
  const auto logged = logged_.find(pid);
  if (logged == logged_.end() && !counted) return std::nullopt;
  if (counted) ++*seen;
  OomKill kill;
  if (logged != logged_.end() && place && !logged->second.limited_cgroup.empty()) {
    place = PlaceOf(MemoryCgroup{place->v2, logged->second.limited_cgroup});
  }
  if (place) FillFromCgroup(*place, kill);
  if (!kill.of_cgroup && logged != logged_.end()) kill.used_bytes = logged->second.resident_bytes;
  return kill;
}

std::string OomWatch::Read(const std::string& path) const {
  std::ifstream in(root_ + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::optional<OomWatch::Place> OomWatch::PlaceOf(const std::string& pid) const {
  const auto cgroup = ParseCgroups(Read(absl::StrCat("/proc/", pid, "/cgroup")));
  if (!cgroup) return std::nullopt;
  return PlaceOf(*cgroup);
}

std::optional<OomWatch::Place> OomWatch::PlaceOf(const MemoryCgroup& cgroup) const {
  Place place{cgroup.v2, "", ""};
  place.folder = CgroupFolder(Read("/proc/self/mountinfo"), cgroup, &place.top);
  if (place.folder.empty()) return std::nullopt;
  return place;
}

std::int64_t OomWatch::KillsAt(const Place& place) const {
  const char* file = place.v2 ? "/memory.events" : "/memory.oom_control";
  return ParseOomKills(Read(place.folder + file)).value_or(0);
}

// The limit that was reached may be that of a cgroup above. Where none was, the machine's memory
// was at its end.
void OomWatch::FillFromCgroup(const Place& place, OomKill& kill) const {
  for (std::string folder = place.folder; folder.size() >= place.top.size();) {
    const auto limit =
        ToBytes(Read(folder + (place.v2 ? "/memory.max" : "/memory.limit_in_bytes")));
    auto used = ToBytes(Read(folder + (place.v2 ? "/memory.peak" : "/memory.max_usage_in_bytes")));
    if (!used && place.v2) used = ToBytes(Read(folder + "/memory.current"));
    if (limit && *limit < kNoLimit && used.value_or(0) >= *limit - *limit / 8) {
      kill = {*used, *limit, /*of_cgroup=*/true};
      return;
    }
    const std::size_t slash = folder.rfind('/');
    if (slash == std::string::npos || slash == 0) break;
    folder.resize(slash);
  }
  for (absl::string_view line : absl::StrSplit(Read("/proc/meminfo"), '\n')) {
    if (absl::ConsumePrefix(&line, "MemTotal:")) kill.limit_bytes = KilobytesAfter(line, "");
  }
}

void OomWatch::ReadKernelLog() {
  std::string record(kKernelLogRecordBytes, '\0');
  for (int i = 0; kernel_log_.valid() && i < kKernelLogRecordsMax; ++i) {
    // One record a call; EPIPE: the log was faster than we, and goes on with the oldest it has.
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
