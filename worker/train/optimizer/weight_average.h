// SPDX-License-Identifier: Apache-2.0
// An exponential moving average of a model's weights: what torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn(decay) keeps. Buffers (batch norm's statistics) are averages already and
// are the model's own.
#pragma once

#include "worker/library/files/state_dict.h"

namespace ddprun {

class WeightAverage {
 public:
  // The average of `parameters` (each once) begins with what they are now.
  WeightAverage(NamedTensors parameters, double decay);

  // After each step: average = decay * average + (1 - decay) * parameter, except where `skip` (a
  // float scalar on the device, which is not waited for; undefined for 0) is 1.
  void Update(const at::Tensor& skip = {});

  // Under the parameters' names; its own tensors, for a checkpoint to write or copy into.
  NamedTensors State() const;

  // Exchanges the values of the average and the parameters, in place: before and after an
  // evaluation.
  void Swap();

 private:
  const NamedTensors parameters_;
  const double decay_;
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> averages_;
};

}  // namespace ddprun
