// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/reply_cache.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

namespace ddprun {

void ReplyCache::Remember(std::uint64_t id, StoreResult result) {
  Forget(id);
  bytes_ += BytesOf(result);
  answers_.emplace(id, std::move(result));
}

const StoreResult* ReplyCache::Find(std::uint64_t id) const {
  const auto it = answers_.find(id);
  return it == answers_.end() ? nullptr : &it->second;
}

void ReplyCache::Forget(std::uint64_t id) {
  const auto it = answers_.find(id);
  if (it == answers_.end()) return;
  bytes_ -= BytesOf(it->second);
  answers_.erase(it);
}

void ReplyCache::KeepOnly(const std::vector<std::uint64_t>& unanswered) {
  const absl::flat_hash_set<std::uint64_t> wanted(unanswered.begin(), unanswered.end());
  for (auto it = answers_.begin(); it != answers_.end();) {
    if (wanted.contains(it->first)) {
      ++it;
      continue;
    }
    bytes_ -= BytesOf(it->second);
    it = answers_.erase(it);
  }
}

void ReplyCache::ForEach(
    const std::function<void(std::uint64_t id, const StoreResult&)>& on_answer) const {
  for (const auto& [id, answer] : answers_) on_answer(id, answer);
}

void ReplyCache::Clear() {
  answers_.clear();
  bytes_ = 0;
}

void ReplyCache::ForgetLowest() {
  if (!answers_.empty()) Forget(answers_.begin()->first);
}

}  // namespace ddprun
