// SPDX-License-Identifier: Apache-2.0
// The weights of mixed precision. Autocast casts each weight in each forward, and forgets the casts
// when its scope ends. These stay: autocast finds them in its cache, and each step writes into
// them, in the optimizer's own kernel where it has one, else in one multi-tensor copy. Backward
// goes through the casts as it did, so gradients reach the parameters as floats. The numbers are
// those of autocast alone, bit by bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/optimizer/optimizer.h"

namespace ddprun {

class CastWeights {
 public:
  // Casts the float parameters that are trained to `type`, which Autocast scopes of this thread
  // must have from now on. All of them: what autocast cast by itself would never be cast again.
  // `optimizer` must have the same parameters and outlive this object, of which there may be one at
  // a time.
  CastWeights(const NamedTensors& parameters, at::Device device, at::ScalarType type,
              Optimizer& optimizer);
  ~CastWeights();
  CastWeights(const CastWeights&) = delete;
  CastWeights& operator=(const CastWeights&) = delete;

  // After a step of the optimizer. A CUDA graph can be captured of it.
  void AfterStep();

  // Before a step: for parameters that an operation of LibTorch has changed since the last one.
  void RefreshIfChanged();

  // Before any other forward, after anything but a step has changed the parameters: a checkpoint,
  // or an average in their place.
  void Refresh();

 private:
  // Grows with each change of a parameter by an operation that autograd knows.
  std::uint64_t Changes() const;

  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> casts_;
  bool optimizer_writes_ = false;
  std::uint64_t changes_ = 0;  // that the casts have
};

}  // namespace ddprun
