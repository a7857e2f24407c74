// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/process_stat.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

constexpr std::uint32_t kExiting = 0x4;
constexpr std::uint32_t kDumpsCore = 0x200;
// Counted from the state, which follows the name.
constexpr std::size_t kParentField = 1;
constexpr std::size_t kFlagsField = 6;
constexpr std::size_t kUserTimeField = 11;  // the system time follows

// 0 if there is no such number.
std::uint32_t FieldOf(absl::string_view stat, std::size_t index) {
  // The name may hold spaces and brackets.
  const std::size_t name_end = stat.rfind(") ");
  if (name_end == absl::string_view::npos) return 0;
  const std::vector<absl::string_view> fields = absl::StrSplit(stat.substr(name_end + 2), ' ');
  std::uint32_t number = 0;
  return fields.size() > index && absl::SimpleAtoi(fields[index], &number) ? number : 0;
}

std::string StatOf(pid_t pid) { return ReadSmallFile(absl::StrCat("/proc/", pid, "/stat")); }

}  // namespace

bool SaysEnding(absl::string_view stat) {
  return (FieldOf(stat, kFlagsField) & (kExiting | kDumpsCore)) != 0;
}

bool IsEnding(pid_t pid) { return SaysEnding(StatOf(pid)); }

bool SaysHandled(absl::string_view status, int signal) {
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    std::uint64_t caught = 0;
    if (!absl::ConsumePrefix(&line, "SigCgt:")) continue;
    return absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line), &caught) &&
           ((caught >> (signal - 1)) & 1) != 0;
  }
  return false;
}

bool HandlesSignal(pid_t pid, int signal) {
  return SaysHandled(ReadSmallFile(absl::StrCat("/proc/", pid, "/status")), signal);
}

double CpuSecondsOf(pid_t pid) {
  const std::string stat = StatOf(pid);
  return (static_cast<double>(FieldOf(stat, kUserTimeField)) + FieldOf(stat, kUserTimeField + 1)) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::int64_t ResidentBytesOf(pid_t pid) {
  const std::string sizes = ReadSmallFile(absl::StrCat("/proc/", pid, "/statm"));
  const std::vector<absl::string_view> pages = absl::StrSplit(sizes, ' ');
  std::int64_t resident = 0;
  if (pages.size() < 2 || !absl::SimpleAtoi(pages[1], &resident)) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string NameOfProcess(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid);
  std::string words = ReadSmallFile(folder + "/cmdline", kShownCommandBytesMax);
  std::replace(words.begin(), words.end(), '\0', ' ');
  if (words.empty()) words = ReadSmallFile(folder + "/comm");
  return absl::StrCat(Printable(absl::StripAsciiWhitespace(words)), " (pid ", pid, ")");
}

pid_t ParentOf(pid_t pid) { return static_cast<pid_t>(FieldOf(StatOf(pid), kParentField)); }

namespace {

// "[<0>] fuse_lookup+0x12/0x80" -> "fuse_lookup"
absl::string_view FunctionIn(absl::string_view line) {
  const std::size_t bracket = line.find("] ");
  if (bracket != absl::string_view::npos) line.remove_prefix(bracket + 2);
  return line.substr(0, line.find('+'));
}

std::string WhyItStays(const StuckProcess& process) {
  if (process.state == 'Z' || process.state == 'X') {
    return process.tracer.empty() ? "it is dead, but one of its threads has not ended"
                                  : absl::StrCat("it is dead, but process ", process.tracer,
                                                 ", which traces it, has not released it");
  }
  std::string why = absl::StrCat("it hangs in the kernel (state ", std::string(1, process.state));
  if (!process.wait_point.empty()) absl::StrAppend(&why, ", in ", process.wait_point);
  absl::StrAppend(&why, "), most often in a file system or a driver");
  return why;
}

}  // namespace

StuckProcess ParseStuckProcess(pid_t pid, const std::string& status, const std::string& wchan,
                               const std::string& stack) {
  StuckProcess process{.pid = pid};
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (absl::ConsumePrefix(&line, "Name:")) {
      process.name = Printable(absl::StripAsciiWhitespace(line));  // a process names itself
    } else if (absl::ConsumePrefix(&line, "State:")) {
      line = absl::StripAsciiWhitespace(line);
      if (!line.empty()) process.state = line.front();
    } else if (absl::ConsumePrefix(&line, "TracerPid:")) {
      line = absl::StripAsciiWhitespace(line);
      if (line != "0") process.tracer = std::string(line);
    }
  }
  const absl::string_view point = absl::StripAsciiWhitespace(wchan);
  if (point != "0") process.wait_point = std::string(point);
  int depth = 0;
  for (const absl::string_view line : absl::StrSplit(stack, '\n', absl::SkipWhitespace())) {
    if (++depth > kKernelStackLinesMax) break;
    absl::StrAppend(&process.stack, FunctionIn(line), "\n");
  }
  return process;
}

std::string ToText(const StuckProcess& process, std::chrono::seconds after_kill) {
  std::string text = absl::StrCat(
      "process ", process.pid, " (", process.name.empty() ? "?" : process.name, ") has not ended ",
      after_kill.count(), " s after SIGKILL: ", WhyItStays(process), "; it is left behind");
  for (const absl::string_view line : absl::StrSplit(process.stack, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, "\n    ", line);
  }
  return text;
}

StuckProcess LookAtStuckProcess(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid);
  StuckProcess process =
      ParseStuckProcess(pid, ReadSmallFile(folder + "/status"), ReadSmallFile(folder + "/wchan"),
                        ReadSmallFile(folder + "/stack"));
  if (!process.tracer.empty()) {
    const std::string name = ReadSmallFile(absl::StrCat("/proc/", process.tracer, "/comm"));
    absl::StrAppend(&process.tracer, " (", Printable(absl::StripAsciiWhitespace(name)), ")");
  }
  return process;
}

}  // namespace ddprun
