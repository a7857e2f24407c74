// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/tcpstore/store_op.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace ddprun {

bool Changes(StoreVerb verb) {
  switch (verb) {
    case StoreVerb::kGet:
    case StoreVerb::kCheck:
    case StoreVerb::kWait:
    case StoreVerb::kMultiGet:
    case StoreVerb::kNumKeys:
    case StoreVerb::kListKeys:
    case StoreVerb::kQueueLen:
    case StoreVerb::kWaitCount:
      return false;
    default:
      return true;
  }
}

bool MayWait(StoreVerb verb) {
  return verb == StoreVerb::kGet || verb == StoreVerb::kMultiGet || verb == StoreVerb::kWait ||
         verb == StoreVerb::kQueuePop || verb == StoreVerb::kWaitCount;
}

std::size_t BytesOf(const StoreResult& result) {
  constexpr std::size_t kFraming = 16;
  std::size_t bytes = kFraming + result.status.message().size();
  for (const StoreValue& value : result.values) bytes += kFraming + value.size();
  for (const std::string& key : result.keys) bytes += kFraming + key.size();
  return bytes;
}

StoreResult TimeOver(StoreVerb verb, std::chrono::milliseconds timeout,
                     std::vector<std::string> keys, std::int64_t number) {
  std::string names;
  for (const std::string& key : keys) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", "'", absl::CHexEscape(key), "'");
  }
  const auto more = number - static_cast<std::int64_t>(keys.size());
  if (more > 0) absl::StrAppend(&names, " and ", more, " more");
  const bool counts = verb == StoreVerb::kWaitCount;
  const char* what = verb == StoreVerb::kQueuePop ? "queue "
                     : counts                     ? "the count of key "
                     : number > 1                 ? "keys "
                                                  : "key ";
  StoreResult result;
  result.status = absl::DeadlineExceededError(
      absl::StrCat("waited ", timeout.count(), " ms for ", what, names,
                   counts ? ", which too few have reached" : ", which nobody has set"));
  result.keys = std::move(keys);
  result.number = number;
  return result;
}

}  // namespace ddprun
