// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/options/option_groups.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

std::vector<WorkerWrap> ReadWraps(Reader& reader) {
  std::vector<WorkerWrap> wraps;
  const Value* value = reader.Find("--wrap");
  if (value == nullptr) return wraps;
  for (const absl::string_view text : absl::StrSplit(value->text, kRepeatSeparator)) {
    absl::StatusOr<WorkerWrap> wrap = ParseWrap(text);
    if (!wrap.ok()) {
      reader.FailWith(absl::StrCat(value->source, " '", text, "' ", wrap.status().message()));
      return wraps;
    }
    wraps.push_back(*std::move(wrap));
  }
  if (const int rank = FindRankInTwo(wraps); rank >= 0) {
    reader.FailWith(absl::StrCat(value->source, " gives rank ", rank,
                                 " two commands; write both into one, as in ", rank,
                                 ":\"FIRST SECOND\""));
  }
  return wraps;
}

WorkerStdin ReadWorkerStdin(Reader& reader) {
  WorkerStdin worker_stdin;
  const Value* value = reader.Find("--stdin");
  if (value == nullptr || value->text == "shared") return worker_stdin;
  if (value->text == "none") {
    worker_stdin.to = WorkerStdin::To::kNone;
  } else if (absl::SimpleAtoi(value->text, &worker_stdin.rank) && worker_stdin.rank >= 0 &&
             worker_stdin.rank < kNodesMax * kLocalWorldSizeMax) {
    worker_stdin.to = WorkerStdin::To::kRank;
  } else {
    reader.Fail(*value, "a rank, none or shared");
  }
  return worker_stdin;
}

}  // namespace ddprun
