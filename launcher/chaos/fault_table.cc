// SPDX-License-Identifier: Apache-2.0
#include "launcher/chaos/fault_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using Target = FaultTargetKind;

void AddOnce(FaultKind kind, std::vector<FaultKind>& kinds) {
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
}

}  // namespace

// In the order of FaultKind.
const std::vector<FaultInfo>& FaultTable() {
  static const std::vector<FaultInfo>& table = *new std::vector<FaultInfo>{
      {FaultKind::kKill, "kill", Target::kRank, milliseconds(0), true, true, "SIGKILL to a worker"},
      {FaultKind::kSegv, "segv", Target::kRank, milliseconds(0), true, true, "SIGSEGV to a worker"},
      {FaultKind::kTerm, "term", Target::kRank, milliseconds(0), true, true, "SIGTERM to a worker"},
      {FaultKind::kStop, "stop", Target::kRank, milliseconds(2000), true, false,
       "SIGSTOP to a worker, then SIGCONT"},
      {FaultKind::kSlow, "slow", Target::kRank, milliseconds(3000), true, false,
       "a worker is stopped for half of the time"},
      {FaultKind::kDisk, "disk", Target::kRank, milliseconds(3000), true, false,
       "a worker's writes to files fail (RLIMIT_FSIZE)"},
      {FaultKind::kFiles, "files", Target::kRank, milliseconds(3000), true, false,
       "a worker opens no more files (RLIMIT_NOFILE)"},
      {FaultKind::kSession, "session", Target::kNode, milliseconds(2000), true, false,
       "an agent breaks its connection to the service"},
      {FaultKind::kCut, "cut", Target::kRank, milliseconds(0), true, false,
       "a worker's TCP connections are shut down"},
      {FaultKind::kSlowNet, "slownet", Target::kRank, milliseconds(3000), true, false,
       "a worker's TCP connections send at most 1 MB/s"},
      {FaultKind::kAgent, "agent", Target::kNode, milliseconds(0), false, true,
       "SIGKILL to an agent; its ddprun must be started again"},
      {FaultKind::kService, "service", Target::kService, milliseconds(0), false, false,
       "SIGKILL to a ddprun-rendezvous with a journal; likewise"},
  };
  return table;
}

const FaultInfo& InfoOf(FaultKind kind) {
  for (const FaultInfo& info : FaultTable()) {
    if (info.kind == kind) return info;
  }
  static const FaultInfo undo{FaultKind::kUndo,
                              "undo",
                              Target::kNode,
                              milliseconds(0),
                              false,
                              false,
                              "ends all lasting faults of a node"};
  return undo;
}

milliseconds DurationOf(FaultKind kind, milliseconds asked) {
  const milliseconds own = InfoOf(kind).duration;
  return own.count() > 0 && asked.count() > 0 ? asked : own;
}

absl::StatusOr<std::vector<FaultKind>> ParseFaultKinds(const std::string& list) {
  std::vector<FaultKind> kinds;
  for (const absl::string_view word : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    bool found = word == "all" || word == "default";
    for (const FaultInfo& info : FaultTable()) {
      const bool meant =
          word == info.name || word == "all" || (word == "default" && info.by_default);
      if (meant) AddOnce(info.kind, kinds);
      found = found || word == info.name;
    }
    if (found) continue;
    const auto append_name = [](std::string* out, const FaultInfo& info) {
      absl::StrAppend(out, info.name);
    };
    return absl::InvalidArgumentError(absl::StrCat("there is no fault '", word, "'; name some of ",
                                                   absl::StrJoin(FaultTable(), ", ", append_name),
                                                   ", or all"));
  }
  if (kinds.empty()) return absl::InvalidArgumentError("--kinds names no fault; name one, or all");
  return kinds;
}

std::string FaultsHelp() {
  std::string text;
  for (const FaultInfo& info : FaultTable()) {
    const std::string time =
        info.duration.count() > 0 ? absl::StrCat(" for ", info.duration.count() / 1000, " s") : "";
    absl::StrAppendFormat(&text, "  %-9s %s%s%s\n", info.name, info.what, time,
                          info.by_default ? "" : " (only if named)");
  }
  return text;
}

}  // namespace ddprun
