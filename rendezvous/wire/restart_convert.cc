// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/restart_convert.h"

#include <algorithm>

#include "rendezvous/base/limits.h"
#include "rendezvous/wire/scalars.h"

namespace ddprun {
namespace {

// Reads one more than the rules allow, which is enough for them to reject it.
std::vector<ExitCodeRange> Read(
    const google::protobuf::RepeatedPtrField<v1::ExitCodeRange>& ranges) {
  std::vector<ExitCodeRange> codes;
  const int count = std::min(ranges.size(), static_cast<int>(kExitCodeRangesMax) + 1);
  for (int i = 0; i < count; ++i) codes.push_back({ranges[i].first(), ranges[i].last()});
  return codes;
}

void Fill(const std::vector<ExitCodeRange>& codes,
          google::protobuf::RepeatedPtrField<v1::ExitCodeRange>* ranges) {
  for (const ExitCodeRange& code : codes) {
    v1::ExitCodeRange* range = ranges->Add();
    range->set_first(code.first);
    range->set_last(code.last);
  }
}

}  // namespace

v1::RestartPolicy ToProto(const RestartPolicy& policy) {
  v1::RestartPolicy message;
  *message.mutable_window() = ToDuration(policy.window);
  *message.mutable_reset() = ToDuration(policy.reset);
  message.set_no_progress_max(policy.no_progress_max);
  Fill(policy.never_codes, message.mutable_never_codes());
  Fill(policy.only_codes, message.mutable_only_codes());
  message.set_node_failures_max(policy.node_failures_max);
  *message.mutable_node_cooldown() = ToDuration(policy.node_cooldown);
  *message.mutable_delay() = ToDuration(policy.delay);
  *message.mutable_delay_max() = ToDuration(policy.delay_max);
  return message;
}

RestartPolicy FromProto(const v1::RestartPolicy& message) {
  return {.window = ToMilliseconds(message.window()),
          .reset = ToMilliseconds(message.reset()),
          .no_progress_max = message.no_progress_max(),
          .never_codes = Read(message.never_codes()),
          .only_codes = Read(message.only_codes()),
          .node_failures_max = message.node_failures_max(),
          .node_cooldown = ToMilliseconds(message.node_cooldown()),
          .delay = ToMilliseconds(message.delay()),
          .delay_max = ToMilliseconds(message.delay_max())};
}

}  // namespace ddprun
