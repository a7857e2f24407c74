// SPDX-License-Identifier: Apache-2.0
// All tensors that a step of a training changes, each listed once. Who saves the state, compares
// it, sends it to another rank or undoes steps takes its part of this list: a tensor that is added
// here is forgotten by none of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "worker/library/files/named_tensors.h"
#include "worker/train/training/training_parts.h"

namespace ddprun {

// Ordered: who takes one takes those before it.
enum class HeldBy {
  kAllAlike,    // every rank has the same bits after each step
  kOneForAll,   // one rank's values are as good as any other's: buffers, sums of the epoch
  kItselfOnly,  // of no use to another rank: its sums of the step under way
};

struct StateTensor {
  std::string name;  // of a checkpoint's tensor
  at::Tensor tensor;
  HeldBy held = HeldBy::kAllAlike;
  bool saved = true;  // as a tensor of checkpoints; else as numbers of their header, or not at all
};

// Valid until the parts leave or join a world.
class StateView {
 public:
  explicit StateView(const TrainingParts& parts);

  // What a checkpoint holds, and of a model that ranks share this one's part.
  NamedTensors Saved() const;
  // What is held in the way of `last` or of one before it; a tensor with two names once.
  std::vector<at::Tensor> UpTo(HeldBy last) const;

  const std::vector<StateTensor>& tensors() const { return tensors_; }

 private:
  std::vector<StateTensor> tensors_;
};

}  // namespace ddprun
