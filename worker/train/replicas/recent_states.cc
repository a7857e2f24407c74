// SPDX-License-Identifier: Apache-2.0
#include "worker/train/replicas/recent_states.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

std::vector<at::Tensor> SortedByType(std::vector<at::Tensor> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const at::Tensor& a, const at::Tensor& b) {
    return a.scalar_type() < b.scalar_type();
  });
  return tensors;
}

}  // namespace

RecentStates::RecentStates(const std::vector<at::Tensor>& tensors, std::size_t copies)
    : state_(SortedByType(tensors)), copies_(copies) {}

void RecentStates::Keep(const Host& now) {
  Copy& copy = copies_[next_];
  next_ = (next_ + 1) % copies_.size();
  copy.values.Keep(state_);
  copy.host = now;
  if (first_ < 0) first_ = StepOf(now);
  queued_ = StepOf(now) + 1;
}

std::optional<RecentStates::Host> RecentStates::GoBackTo(std::int64_t ended) {
  const std::int64_t step = std::max(ended, first_);
  if (first_ < 0 || step == queued_) return std::nullopt;
  const auto has_it = [step](const Copy& copy) { return copy.host && StepOf(*copy.host) == step; };
  const auto copy = std::find_if(copies_.begin(), copies_.end(), has_it);
  TORCH_CHECK(copy != copies_.end(), "the state after step ", step, " was not kept: step ", queued_,
              " was queued, and ", copies_.size(), " states are kept");
  copy->values.CopyTo(state_);
  return copy->host;
}

}  // namespace ddprun
