// SPDX-License-Identifier: Apache-2.0
// Caches the replies to one node's operations that change something until the node confirms them, so
// that an operation that is sent again after its stream broke is not performed twice. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/btree_map.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/values/store_types.h"

namespace ddprun {

class ReplyCache {
 public:
  void Remember(std::uint64_t id, StoreResult result);
  const StoreResult* Find(std::uint64_t id) const;
  void Forget(std::uint64_t id);
  // The node has every reply that is not in `unanswered`.
  void KeepOnly(const std::vector<std::uint64_t>& unanswered);
  void Clear();
  void ForEach(const std::function<void(std::uint64_t id, const StoreResult&)>& on_answer) const;

  bool IsFull() const {
    return answers_.size() >= kRememberedAnswersMax || bytes_ >= kRememberedBytesMax;
  }
  // The lowest ids are the likeliest to have been confirmed.
  void ForgetLowest();
  std::size_t size() const { return answers_.size(); }

 private:
  absl::btree_map<std::uint64_t, StoreResult> answers_;
  std::size_t bytes_ = 0;  // of values
};

}  // namespace ddprun
