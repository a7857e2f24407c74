// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/recent_states.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <map>
#include <utility>

namespace ddprun {

RecentStates::Lists RecentStates::ByType(const std::vector<at::Tensor>& tensors) {
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& tensor : tensors) by_type[tensor.scalar_type()].push_back(tensor.detach());
  Lists lists;
  for (auto& [type, list] : by_type) lists.push_back(std::move(list));
  return lists;
}

void RecentStates::CopyAll(const Lists& from, const Lists& to) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from.size(); ++i)
    at::_foreach_copy_(to[i], from[i], /*non_blocking=*/true);
}

RecentStates::RecentStates(const std::vector<at::Tensor>& tensors, std::size_t copies)
    : state_(ByType(tensors)), copies_(copies) {}

void RecentStates::Keep(const Host& now) {
  Copy& copy = copies_[next_];
  next_ = (next_ + 1) % copies_.size();
  if (copy.values.empty()) {
    copy.values = state_;
    for (auto& list : copy.values) {
      for (at::Tensor& tensor : list) tensor = at::empty_like(tensor);
    }
  }
  CopyAll(state_, copy.values);
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
  CopyAll(copy->values, state_);
  return copy->host;
}

}  // namespace ddprun
