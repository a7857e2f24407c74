// SPDX-License-Identifier: Apache-2.0
// A store operation and its answer as plain values: what the store's core, its client and the
// worker's c10d::Store speak. The meaning of each verb is in proto/ddprun.proto.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

enum class StoreVerb {
  kSet = 1,
  kGet,
  kAdd,
  kCompareSet,
  kCheck,
  kWait,
  kDelete,
  kAppend,
  kMultiGet,
  kMultiSet,
  kNumKeys,
  kListKeys,
  kQueuePush,
  kQueuePop,
  kQueueLen,
};

struct StoreOp {
  StoreVerb verb = StoreVerb::kGet;
  RoundId round = kNoRound;
  std::vector<std::string> keys;
  std::vector<std::string> values;  // bytes
  std::int64_t number = 0;
  std::chrono::milliseconds timeout{0};  // of the verbs that wait
  bool operator==(const StoreOp&) const = default;
};

// Whether the verb may change what the store holds.
bool Changes(StoreVerb verb);
// Whether it waits for what is not there.
bool MayWait(StoreVerb verb);

// Status codes: INVALID_ARGUMENT (wrong number of keys or values, a value that ADD cannot read as a
// number), RESOURCE_EXHAUSTED (a limit of rendezvous/base/limits.h), DEADLINE_EXCEEDED (the wait's
// time is over: the message names the keys that are missing), NOT_FOUND (QUEUE_POP without waiting,
// queue empty), ABORTED (the operation's round is over: the message names both rounds), UNAVAILABLE
// (the connection is gone), CANCELLED (the caller went away).
struct StoreResult {
  absl::Status status;
  std::vector<std::string> values;
  std::int64_t number = 0;
  std::vector<std::string> keys;
  bool operator==(const StoreResult&) const = default;
};

// The answer to `op` when its time is over: `keys` are some of the missing keys and `number` says
// how many are missing.
StoreResult TimeOver(StoreVerb verb, std::chrono::milliseconds timeout,
                     std::vector<std::string> keys, std::int64_t number);
// For how many of them.
inline constexpr std::size_t kKeysInSentence = 3;

}  // namespace ddprun
