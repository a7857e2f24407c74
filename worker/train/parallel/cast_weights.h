// SPDX-License-Identifier: Apache-2.0
// The weights of mixed precision. Autocast casts each weight in each forward, and forgets the casts
// when its scope ends. These stay: autocast finds them in its cache, and each step writes into
// them, in the optimizer's own kernel where it has one, else in one multi-tensor copy. The numbers
// are those of autocast alone, bit by bit.
//
// Gradients reach the parameters as floats, each as soon as it is there: autograd runs what it can
// in the reverse order of forward, and casts that are older than all of it last of all, when no
// averaging could be hidden behind backward any more.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/library/base/torch_versions.h"
#include "worker/train/optimizer/optimizer.h"

namespace ddprun {

class CastWeights {
 public:
  // Casts the float parameters that are trained to `type`, which Autocast scopes of this thread
  // must have from now on. All of them: what autocast cast by itself would never be cast again.
  // `optimizer` must have the same parameters and outlive this object, of which there may be one at
  // a time. `gather`: gradients are kept in backward until GatherGradients(), where nobody asks for
  // them meanwhile, as a reducer does.
  CastWeights(const NamedTensors& parameters, at::Device device, at::ScalarType type,
              Optimizer& optimizer, bool gather = false);
  ~CastWeights();
  CastWeights(const CastWeights&) = delete;
  CastWeights& operator=(const CastWeights&) = delete;

  // After a backward: adds the gradients that it has left to those of the parameters, all by one
  // multi-tensor cast. Does nothing without `gather`.
  void GatherGradients();

  // After a step of the optimizer. A CUDA graph can be captured of it.
  void AfterStep();

  // Before a step: for parameters that an operation of LibTorch has changed since the last one.
  void RefreshIfChanged();

  // Before any other forward, after anything but a step has changed the parameters: a checkpoint,
  // or an average in their place.
  void Refresh();

 private:
  class Gradient;  // the node of autograd from a cast to its parameter

  // Grows with each change of a parameter by an operation that autograd knows.
  std::uint64_t Changes() const;

  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> casts_;
  std::vector<NodePtr<Gradient>> gathered_;  // empty without `gather`
  bool optimizer_writes_ = false;
  std::uint64_t changes_ = 0;  // that the casts have
};

}  // namespace ddprun
