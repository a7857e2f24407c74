// SPDX-License-Identifier: Apache-2.0
// Commands under which the programs of some ranks run: --wrap. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct WorkerWrap {
  std::vector<int> ranks;            // ascending; empty: all
  std::vector<std::string> command;  // not empty; the rank's own command follows it
  bool operator==(const WorkerWrap&) const = default;
};

// RANKS:COMMAND, as in "0-3,8:nsys profile -o out.%r"; RANKS may be `all`. INVALID_ARGUMENT: the
// error as the end of a sentence ("is not ...").
absl::StatusOr<WorkerWrap> ParseWrap(absl::string_view text);

// As a shell splits them: quotes and backslashes, and no expansion of any kind. Absent: a quote has
// no end.
std::optional<std::vector<std::string>> SplitWords(absl::string_view text);

// That of this rank; null: it runs by itself.
const WorkerWrap* FindWrap(const std::vector<WorkerWrap>& wraps, int rank);

// The lowest rank that two of them name; -1: none.
int FindRankInTwo(const std::vector<WorkerWrap>& wraps);

// The highest rank that they name; -1: none.
int HighestWrapped(const std::vector<WorkerWrap>& wraps);

// The command of a rank: %r and ${rank} are its number, ${local_rank} that on its node.
std::vector<std::string> WrapCommand(const WorkerWrap& wrap, int rank, int local_rank);

}  // namespace ddprun
