// SPDX-License-Identifier: Apache-2.0
#include "worker/library/distributed/agent_store.h"

#include <c10/util/Exception.h>

#include <utility>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using Bytes = std::vector<uint8_t>;

std::string ToString(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
Bytes ToBytes(const std::string& text) { return {text.begin(), text.end()}; }

std::vector<std::string> ToStrings(const std::vector<Bytes>& values) {
  std::vector<std::string> strings;
  strings.reserve(values.size());
  for (const Bytes& value : values) strings.push_back(ToString(value));
  return strings;
}

// c10d's "no timeout" is zero or less. An endless wait would hide a dead peer, so the longest
// timeout is used.
std::chrono::milliseconds WaitLimit(std::chrono::milliseconds timeout) {
  const bool endless = timeout <= c10d::Store::kNoTimeout || timeout > kStoreTimeoutMax;
  return endless ? std::chrono::milliseconds(kStoreTimeoutMax) : timeout;
}

std::string KeyList(const std::vector<std::string>& keys) {
  constexpr std::size_t kNamedMax = 8;
  std::string list;
  for (std::size_t i = 0; i < keys.size() && i < kNamedMax; ++i) {
    list += (i == 0 ? "" : ", ") + keys[i];
  }
  if (keys.size() > kNamedMax) list += " and " + std::to_string(keys.size() - kNamedMax) + " more";
  return list;
}

[[noreturn]] void ThrowStatus(const absl::Status& status, const StoreOp& op) {
  const std::string message(status.message());
  // Gloo and ProcessGroupNCCL tell apart by type what they may try again and what is over.
  // An operation that waits for no key has no time of its own: the message has how long it took.
  if (absl::IsDeadlineExceeded(status) && op.timeout.count() > 0) {
    C10_THROW_ERROR(DistStoreError, c10::str("wait timeout after ", op.timeout.count(),
                                             "ms, keys: ", KeyList(op.keys), " (", message, ")"));
  }
  if (absl::IsNotFound(status) && op.verb == StoreVerb::kQueuePop) {
    C10_THROW_ERROR(DistQueueEmptyError, message);
  }
  if (absl::IsUnavailable(status) || absl::IsCancelled(status)) {
    C10_THROW_ERROR(DistNetworkError, message);
  }
  C10_THROW_ERROR(DistStoreError, message);
}

}  // namespace

AgentStore::AgentStore(std::shared_ptr<StoreClient> client, std::chrono::milliseconds timeout)
    : c10d::Store(timeout), client_(std::move(client)) {}

c10::intrusive_ptr<AgentStore> AgentStore::Connect(StoreClient::Options options,
                                                   std::chrono::milliseconds timeout) {
  absl::StatusOr<std::shared_ptr<StoreClient>> client = StoreClient::Connect(std::move(options));
  if (!client.ok()) C10_THROW_ERROR(DistNetworkError, std::string(client.status().message()));
  return c10::make_intrusive<AgentStore>(*std::move(client), timeout);
}

StoreResult AgentStore::Call(StoreOp op) const {
  StoreResult result = client_->Call(op);
  if (!result.status.ok()) ThrowStatus(result.status, op);
  return result;
}

c10::intrusive_ptr<c10d::Store> AgentStore::clone() {
  return c10::make_intrusive<AgentStore>(client_, timeout_);
}

void AgentStore::set(const std::string& key, const Bytes& value) {
  Call({.verb = StoreVerb::kSet, .keys = {key}, .values = {ToString(value)}});
}

Bytes AgentStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  const StoreResult result = Call({.verb = StoreVerb::kCompareSet,
                                   .keys = {key},
                                   .values = {ToString(expected), ToString(desired)}});
  return ToBytes(result.values.at(0));
}

Bytes AgentStore::get(const std::string& key) {
  const StoreResult result =
      Call({.verb = StoreVerb::kGet, .keys = {key}, .timeout = WaitLimit(timeout_)});
  return ToBytes(result.values.at(0));
}

int64_t AgentStore::add(const std::string& key, int64_t value) {
  return Call({.verb = StoreVerb::kAdd, .keys = {key}, .number = value}).number;
}

bool AgentStore::deleteKey(const std::string& key) {
  return Call({.verb = StoreVerb::kDelete, .keys = {key}}).number != 0;
}

bool AgentStore::check(const std::vector<std::string>& keys) {
  return Call({.verb = StoreVerb::kCheck, .keys = keys}).number != 0;
}

int64_t AgentStore::getNumKeys() { return Call({.verb = StoreVerb::kNumKeys}).number; }

void AgentStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void AgentStore::wait(const std::vector<std::string>& keys,
                      const std::chrono::milliseconds& timeout) {
  Call({.verb = StoreVerb::kWait, .keys = keys, .timeout = WaitLimit(timeout)});
}

void AgentStore::append(const std::string& key, const Bytes& value) {
  Call({.verb = StoreVerb::kAppend, .keys = {key}, .values = {ToString(value)}});
}

std::vector<Bytes> AgentStore::multiGet(const std::vector<std::string>& keys) {
  const StoreResult result =
      Call({.verb = StoreVerb::kMultiGet, .keys = keys, .timeout = WaitLimit(timeout_)});
  std::vector<Bytes> values;
  values.reserve(result.values.size());
  for (const std::string& value : result.values) values.push_back(ToBytes(value));
  return values;
}

void AgentStore::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  Call({.verb = StoreVerb::kMultiSet, .keys = keys, .values = ToStrings(values)});
}

void AgentStore::queuePush(const std::string& key, const Bytes& value) {
  Call({.verb = StoreVerb::kQueuePush, .keys = {key}, .values = {ToString(value)}});
}

Bytes AgentStore::queuePop(const std::string& key, bool block) {
  const auto timeout = block ? WaitLimit(timeout_) : std::chrono::milliseconds(0);
  const StoreResult result =
      Call({.verb = StoreVerb::kQueuePop, .keys = {key}, .timeout = timeout});
  return ToBytes(result.values.at(0));
}

int64_t AgentStore::queueLen(const std::string& key) {
  return Call({.verb = StoreVerb::kQueueLen, .keys = {key}}).number;
}

std::vector<std::string> AgentStore::listKeys() {
  return Call({.verb = StoreVerb::kListKeys}).keys;
}

}  // namespace ddprun
