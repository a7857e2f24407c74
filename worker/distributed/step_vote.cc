// SPDX-License-Identifier: Apache-2.0
#include "worker/distributed/step_vote.h"

#include <ATen/Functions.h>

#include <utility>

namespace ddprun {

StepVote::StepVote(World& world) : world_(world) {}

void StepVote::Begin(const Wishes& own) {
  own_ = own;
  if (world_.size() == 1) return;
  if (world_.device().is_cuda() && step_++ % kInterval != 0) return;
  ballot_ = {at::tensor({own.save ? 1 : 0, own.stop}, at::kInt).to(world_.device())};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  work_ = world_.group()->allreduce(ballot_, options);
}

StepVote::Wishes StepVote::End() {
  if (world_.size() == 1) return own_;
  if (!work_) return {};
  std::exchange(work_, nullptr)->wait();
  const at::Tensor result = ballot_[0].cpu();
  const int* const values = result.const_data_ptr<int>();
  return {.save = values[0] != 0, .stop = values[1]};
}

}  // namespace ddprun
