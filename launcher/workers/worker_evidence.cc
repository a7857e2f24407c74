// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/worker_evidence.h"

#include <glob.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "rendezvous/base/printable.h"
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

// Of this machine now, and the limits that workers inherit from this process.
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

}  // namespace

void WorkerEvidence::Add(Event event) {
  waiting_.push_back({.event = std::move(event), .call = {}, .deadline = {}});
}

void WorkerEvidence::Add(WorkerEnded ended, Question question, TimePoint now) {
  if (core_folder_hangs_) question.core_of_start.reset();
  Waiting& waiting = waiting_.emplace_back();
  waiting.call = background_.Start<Found>(
      [question = std::move(question), pid = static_cast<pid_t>(ended.pid)] {
        return Read(question, pid);
      });
  waiting.deadline = now + kDiskAnswerTimeout;
  waiting.event = std::move(ended);
}

WorkerEvidence::Found WorkerEvidence::Read(const Question& question, pid_t pid) {
  Found found;
  // A worker without a readable record has no message.
  found.record = ReadFailureRecord(question.record_file).value_or(FailureRecord{});
  found.record_bytes = ReadSmallFile(question.record_file, kRecordBytesMax);
  if (question.core_of_start.has_value())
    found.core_file = FindCoreOf(pid, question.signal, *question.core_of_start);
  found.evidence = ReadEndEvidence(question.cpu_seconds);
  found.evidence.is_python = question.is_python;
  return found;
}

void WorkerEvidence::SetPlaces(const std::vector<RanksInPlace>& places) {
  for (Waiting& waiting : waiting_) {
    auto* ended = std::get_if<WorkerEnded>(&waiting.event);
    if (ended != nullptr && !ended->stopped && !IsSuccess(ended->outcome)) ended->places = places;
  }
}

void WorkerEvidence::Release(TimePoint now, std::vector<Event>& events) {
  while (!waiting_.empty()) {
    Waiting& front = waiting_.front();
    if (front.call.valid()) {
      std::optional<Found> found = TakeResult(front.call);
      if (!found.has_value() && now < front.deadline) return;
      auto& ended = std::get<WorkerEnded>(front.event);
      if (found.has_value()) {
        ended.message = PrintableLines(found->record.message);
        ended.traceback = PrintableLines(found->record.traceback);
        ended.core_file = Printable(found->core_file);  // may contain the program's name
        ended.evidence = std::move(found->evidence);
        keep_record_(ended.local_rank, found->record_bytes);
      } else {
        core_folder_hangs_ = true;
      }
    }
    events.push_back(std::move(front.event));
    waiting_.pop_front();
  }
}

std::optional<TimePoint> WorkerEvidence::NextDeadline() const {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.front().deadline;
}

}  // namespace ddprun
