// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/graph_steps.h"

#include <utility>

namespace ddprun {
namespace {

Collective NameOf(std::int64_t step) {
  return {.group = kGraphStep, .number = step, .name = kGraphStep};
}

}  // namespace

void GraphSteps::Add(std::int64_t step, std::unique_ptr<StreamMark> mark) {
  const std::lock_guard lock(mutex_);
  steps_.push_back({step, std::move(mark)});
}

std::size_t GraphSteps::queued() const {
  const std::lock_guard lock(mutex_);
  return steps_.size();
}

bool GraphSteps::OldestEnded() {
  const std::lock_guard lock(mutex_);
  return PopIfEnded();
}

void GraphSteps::Close() {
  const std::lock_guard lock(mutex_);
  PopAllEnded();
  closed_ = true;
}

std::int64_t GraphSteps::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

CollectivePlace GraphSteps::Place() {
  const std::lock_guard lock(mutex_);
  PopAllEnded();
  CollectivePlace place;
  if (!steps_.empty()) place.waits = NameOf(steps_.front().number);
  if (ended_ != 0) place.last.push_back(NameOf(ended_));
  return place;
}

bool GraphSteps::PopIfEnded() {
  if (closed_ || !steps_.front().mark->Passed()) return false;
  ended_ = steps_.front().number;
  steps_.pop_front();
  return true;
}

void GraphSteps::PopAllEnded() {
  while (!steps_.empty() && PopIfEnded()) {
  }
}

}  // namespace ddprun
