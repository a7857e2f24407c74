// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/answer_memory.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

namespace ddprun {
namespace {

std::size_t BytesOf(const StoreResult& result) {
  std::size_t bytes = 0;
  for (const std::string& value : result.values) bytes += value.size();
  return bytes;
}

}  // namespace

void AnswerMemory::Remember(std::uint64_t id, StoreResult result, bool held) {
  Forget(id);
  bytes_ += BytesOf(result);
  answers_.emplace(id, Remembered{std::move(result), held});
}

AnswerMemory::Remembered* AnswerMemory::Find(std::uint64_t id) {
  const auto it = answers_.find(id);
  return it == answers_.end() ? nullptr : &it->second;
}

void AnswerMemory::Forget(std::uint64_t id) {
  const auto it = answers_.find(id);
  if (it == answers_.end()) return;
  bytes_ -= BytesOf(it->second.result);
  answers_.erase(it);
}

void AnswerMemory::KeepOnly(const std::vector<std::uint64_t>& unanswered) {
  const absl::flat_hash_set<std::uint64_t> wanted(unanswered.begin(), unanswered.end());
  for (auto it = answers_.begin(); it != answers_.end();) {
    if (wanted.contains(it->first)) {
      ++it;
      continue;
    }
    bytes_ -= BytesOf(it->second.result);
    it = answers_.erase(it);
  }
}

void AnswerMemory::ForEach(const std::function<void(std::uint64_t id, Remembered&)>& on_answer) {
  for (auto& [id, answer] : answers_) on_answer(id, answer);
}

void AnswerMemory::Clear() {
  answers_.clear();
  bytes_ = 0;
}

void AnswerMemory::ForgetLowest() {
  if (!answers_.empty()) Forget(answers_.begin()->first);
}

}  // namespace ddprun
