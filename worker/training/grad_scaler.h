// SPDX-License-Identifier: Apache-2.0
// Scales the loss so that small gradients do not vanish in fp16, and leaves out steps whose
// gradients have overflowed: torch.amp.GradScaler's rules (torch/amp/grad_scaler.py) and defaults.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddprun {

class GradScaler {
 public:
  static constexpr double kInitialScale = 65536;
  static constexpr double kGrowth = 2;
  static constexpr double kBackoff = 0.5;
  static constexpr std::int64_t kGrowthInterval = 2000;  // steps in a row without an overflow

  // Disabled it is a scale of 1 that leaves everything as it is.
  explicit GradScaler(bool enabled) : scale_(enabled ? kInitialScale : 1), enabled_(enabled) {}

  bool enabled() const { return enabled_; }
  // What the loss is to be multiplied with before backward.
  double scale() const { return scale_; }

  // Divides the gradients by the scale, in place. Returns whether all of them are finite. The
  // gradients must be on one device. Waits for that device.
  bool Unscale(const std::vector<at::Tensor>& gradients) const;

  // After the step (taken or, with an overflow on any rank, left out): the scale of the next one.
  void Update(bool finite);

  // What a checkpoint holds.
  struct State {
    double scale = 1;
    std::int64_t steps_since_growth = 0;
  };
  State state() const { return {scale_, steps_since_growth_}; }
  void Restore(const State& state);

 private:
  double scale_;
  std::int64_t steps_since_growth_ = 0;
  const bool enabled_;
};

}  // namespace ddprun
