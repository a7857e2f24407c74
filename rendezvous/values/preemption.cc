// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/preemption.h"

#include "absl/strings/str_cat.h"

namespace ddprun {

std::string ToSentence(const Preemption& preemption) {
  std::string text = absl::StrCat("node ", preemption.host);
  if (preemption.node_rank >= 0) absl::StrAppend(&text, " (node rank ", preemption.node_rank, ")");
  return absl::StrCat(text, " will be taken away in ",
                      std::chrono::round<std::chrono::seconds>(preemption.remaining).count(), " s",
                      preemption.reason.empty() ? "" : absl::StrCat(" (", preemption.reason, ")"));
}

}  // namespace ddprun
