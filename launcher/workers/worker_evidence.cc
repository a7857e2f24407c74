// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/worker_evidence.h"

#include <glob.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "rendezvous/process/resource_limit.h"

namespace ddprun {
namespace {

std::string KernelSetting(const char* name) {
  const std::string text = ReadSmallFile(absl::StrCat("/proc/sys/kernel/", name));
  return std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace

std::string CorePathPattern(const CoreQuestion& question) {
  if (question.pattern.empty() || question.pattern[0] == '|') return "";
  std::string name;
  bool has_pid = false;
  for (std::size_t i = 0; i < question.pattern.size(); ++i) {
    const char letter = question.pattern[i];
    if (letter != '%') {
      name += letter;
      continue;
    }
    if (++i == question.pattern.size()) break;
    switch (question.pattern[i]) {
      case '%':
        name += '%';
        break;
      case 'p':
      case 'P':
      case 'i':
      case 'I':
        has_pid = has_pid || question.pattern[i] == 'p';
        absl::StrAppend(&name, question.pid);
        break;
      case 's':
        absl::StrAppend(&name, question.signal);
        break;
      default:  // the time, the program's name, its user, ...
        name += '*';
    }
  }
  if (!has_pid && question.uses_pid) absl::StrAppend(&name, ".", question.pid);
  return name.starts_with('/') ? name : absl::StrCat(question.folder, "/", name);
}

std::string FindCore(const CoreQuestion& question) {
  if (absl::StrContains(question.pattern, "systemd-coredump")) {
    return absl::StrCat("`coredumpctl info ", question.pid, "`");
  }
  if (question.pattern.starts_with('|')) {
    const std::string program =
        std::vector<std::string>(absl::StrSplit(question.pattern.substr(1), ' '))[0];
    return absl::StrCat("given to ", program, " (kernel.core_pattern)");
  }
  const std::string pattern = CorePathPattern(question);
  if (pattern.empty()) return "";
  glob_t found{};
  const std::time_t oldest =
      std::chrono::system_clock::to_time_t(question.started - kFileClockErrorMax);
  std::string newest;
  timespec newest_time{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      struct stat about {};
      if (stat(found.gl_pathv[i], &about) != 0 || !S_ISREG(about.st_mode)) continue;
      const timespec& time = about.st_mtim;
      if (time.tv_sec < oldest) continue;
      if (newest.empty() || time.tv_sec > newest_time.tv_sec ||
          (time.tv_sec == newest_time.tv_sec && time.tv_nsec > newest_time.tv_nsec)) {
        newest = found.gl_pathv[i];
        newest_time = time;
      }
    }
  }
  globfree(&found);
  return newest;
}

std::string FindCoreOf(pid_t pid, int signal, std::chrono::system_clock::time_point started) {
  std::error_code error;
  return FindCore({.pattern = KernelSetting("core_pattern"),
                   .uses_pid = KernelSetting("core_uses_pid") == "1",
                   .folder = std::filesystem::current_path(error).string(),
                   .pid = pid,
                   .signal = signal,
                   .started = started});
}

namespace {

std::optional<EndEvidence::Room> RoomAt(const std::string& folder) {
  struct statvfs state {};
  if (statvfs(folder.c_str(), &state) != 0) return std::nullopt;
  const auto bytes = [&](fsblkcnt_t blocks) {
    return static_cast<std::int64_t>(blocks) * static_cast<std::int64_t>(state.f_frsize);
  };
  // Some file systems have no fixed number of inodes, and say 0.
  return EndEvidence::Room{bytes(state.f_blocks), bytes(state.f_bavail),
                           state.f_files == 0 || state.f_favail > 0};
}

bool PromisesNoMoreMemory() {
  if (absl::StripAsciiWhitespace(ReadSmallFile("/proc/sys/vm/overcommit_memory")) != "2")
    return false;
  const std::string meminfo = ReadSmallFile("/proc/meminfo");
  // The worker's own part has been given back by now: a tenth is as good as all.
  const auto promised = NumberAfter(meminfo, "Committed_AS:");
  const auto limit = NumberAfter(meminfo, "CommitLimit:");
  return promised && limit && 10 * *promised >= 9 * *limit;
}

// The state of this machine, and the limits that workers inherit from this process.
EndEvidence ReadEndEvidence(std::optional<double> cpu_seconds) {
  EndEvidence evidence;
  evidence.cpu_seconds = cpu_seconds;
  evidence.cpu_seconds_limit = ResourceLimit(RLIMIT_CPU, /*hard=*/true);  // there comes SIGKILL
  evidence.memory_limit = ResourceLimit(RLIMIT_AS);
  evidence.file_limit = ResourceLimit(RLIMIT_FSIZE);
  evidence.processes_max = ResourceLimit(RLIMIT_NPROC);
  evidence.shm = RoomAt("/dev/shm");
  const char* const tmp = std::getenv("TMPDIR");
  evidence.tmp_folder = tmp != nullptr && *tmp != '\0' ? tmp : "/tmp";
  evidence.tmp = RoomAt(evidence.tmp_folder);
  evidence.promises_no_more_memory = PromisesNoMoreMemory();
  return evidence;
}

Evidence Read(const ReadEvidence& question) {
  Evidence evidence;
  // A worker without a readable record has no message.
  evidence.record = ReadFailureRecord(question.record_file).value_or(FailureRecord{});
  evidence.record_bytes = ReadSmallFile(question.record_file, kRecordBytesMax);
  if (question.core_of_start.has_value()) {
    evidence.core_file =
        FindCoreOf(static_cast<pid_t>(question.pid), question.signal, *question.core_of_start);
  }
  evidence.machine = ReadEndEvidence(question.cpu_seconds);
  evidence.machine.is_python = question.is_python;
  return evidence;
}

}  // namespace

void EvidenceReader::Begin(ReadEvidence question) {
  const int end = question.end;
  reading_[end] =
      background_.Start<Evidence>([question = std::move(question)] { return Read(question); });
}

std::vector<AutopsyEvent> EvidenceReader::Take() {
  std::vector<AutopsyEvent> events;
  if (std::optional<DumpedPlaces> places = TakeResult(dumps_))
    events.push_back(DumpsRead{*std::move(places)});
  for (auto one = reading_.begin(); one != reading_.end();) {
    std::optional<Evidence> evidence = TakeResult(one->second);
    if (evidence.has_value()) events.push_back(EvidenceRead{one->first, *std::move(evidence)});
    one = evidence.has_value() ? reading_.erase(one) : std::next(one);
  }
  return events;
}

}  // namespace ddprun
