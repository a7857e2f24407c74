// SPDX-License-Identifier: Apache-2.0
// A store operation and its result as plain values, for the store's core, its client and the
// worker's c10d::Store. The meaning of each verb is in proto/ddprun.proto.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/base/round_id.h"
#include "rendezvous/tcpstore/store_value.h"

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
  kWaitCount,
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
// Whether it may wait for keys that do not exist, or for what they hold.
bool MayWait(StoreVerb verb);

// Status codes: INVALID_ARGUMENT (wrong number of keys or values, a value that ADD cannot parse as
// a number), RESOURCE_EXHAUSTED (a limit of rendezvous/base/limits.h), DEADLINE_EXCEEDED (the wait
// timed out; the message names the missing keys), NOT_FOUND (QUEUE_POP without waiting from an
// empty queue), ABORTED (the operation's round is over; the message names both rounds), UNAVAILABLE
// (the connection is gone), CANCELLED (the caller is gone).
struct StoreResult {
  absl::Status status;
  std::vector<StoreValue> values;
  std::int64_t number = 0;
  std::vector<std::string> keys;
  bool operator==(const StoreResult&) const = default;
};

// How much a message with it takes, about.
std::size_t BytesOf(const StoreResult& result);

inline StoreResult ErrorResult(absl::Status status) { return {.status = std::move(status)}; }

// The result of a wait that timed out: `keys` are some of the missing keys, `number` is how many
// are missing.
StoreResult TimeOver(StoreVerb verb, std::chrono::milliseconds timeout,
                     std::vector<std::string> keys, std::int64_t number);
// How many missing keys a sentence names.
inline constexpr std::size_t kKeysInSentence = 3;

}  // namespace ddprun
