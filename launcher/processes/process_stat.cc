// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/process_stat.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/small_file.h"

namespace ddprun {
namespace {

constexpr std::uint32_t kExiting = 0x4;
constexpr std::uint32_t kDumpsCore = 0x200;
// Counted from the state, which follows the name.
constexpr std::size_t kParentField = 1;
constexpr std::size_t kFlagsField = 6;

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

pid_t ParentOf(pid_t pid) { return static_cast<pid_t>(FieldOf(StatOf(pid), kParentField)); }

}  // namespace ddprun
