// SPDX-License-Identifier: Apache-2.0
// Scales the loss so that small gradients do not vanish in fp16, and skips steps whose gradients
// have overflowed: torch.amp.GradScaler's rules (torch/amp/grad_scaler.py) and defaults. The scale
// and the decisions stay on the device, which the host never waits for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/library/files/named_tensors.h"

namespace ddprun {

class GradScaler {
 public:
  static constexpr double kInitialScale = 65536;
  static constexpr double kGrowth = 2;
  static constexpr double kBackoff = 0.5;
  static constexpr std::int64_t kGrowthInterval = 2000;  // steps in a row without an overflow

  // Disabled it is a scale of 1 that changes nothing.
  GradScaler(bool enabled, at::Device device);

  // A scale that stays, and skips no step: not enabled, as nothing of it changes.
  static GradScaler Fixed(double scale, at::Device device);

  bool enabled() const { return overflow_.defined(); }

  // What the loss is to be multiplied with before backward: a float scalar on the device; undefined
  // if disabled.
  const at::Tensor& scale() const { return scale_; }

  // Divides the gradients by the scale, in place. Returns a float scalar: 1 if any of them is not
  // finite, else 0. The same tensor at each call; undefined if disabled or fixed.
  const at::Tensor& Unscale(const std::vector<at::Tensor>& gradients);

  // The scale of the next step, by what Unscale() has returned (or, where ranks share a model, by
  // what any of them has found, which has been written there).
  void Update();

  // What a checkpoint holds. Waits for the device.
  struct State {
    double scale = 1;
    std::int64_t steps_since_growth = 0;
  };
  State state() const;
  // The same on the device, to copy from and into; none if disabled.
  NamedTensors Tensors() const;
  void Restore(const State& state);

 private:
  at::Tensor scale_;
  at::Tensor steps_since_growth_;
  at::Tensor overflow_;
  double fixed_scale_ = 1;
};

}  // namespace ddprun
