// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/process_exiting.h"

#include <cstdint>
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
constexpr std::size_t kFlagsField = 6;

}  // namespace

bool SaysEnding(absl::string_view stat) {
  // The name may hold spaces and brackets.
  const std::size_t name_end = stat.rfind(") ");
  if (name_end == absl::string_view::npos) return false;
  const std::vector<absl::string_view> fields = absl::StrSplit(stat.substr(name_end + 2), ' ');
  std::uint32_t flags = 0;
  return fields.size() > kFlagsField && absl::SimpleAtoi(fields[kFlagsField], &flags) &&
         (flags & (kExiting | kDumpsCore)) != 0;
}

bool IsEnding(pid_t pid) { return SaysEnding(ReadSmallFile(absl::StrCat("/proc/", pid, "/stat"))); }

}  // namespace ddprun
