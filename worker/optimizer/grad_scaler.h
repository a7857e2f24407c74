// SPDX-License-Identifier: Apache-2.0
// Scales the loss so that small gradients do not vanish in fp16, and leaves out steps whose
// gradients have overflowed: torch.amp.GradScaler's rules (torch/amp/grad_scaler.py) and defaults.
// The host keeps the scale and decides, or, after KeepOn(), a device does, which nobody waits for.
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
  // What the loss is to be multiplied with before backward. Waits for the device that keeps it.
  double scale() const { return state().scale; }

  // Divides the gradients by the scale, in place. Returns whether all of them are finite. The
  // gradients must be on one device. Waits for that device.
  bool Unscale(const std::vector<at::Tensor>& gradients) const;

  // After the step (taken or, with an overflow on any rank, left out): the scale of the next one.
  void Update(bool finite);

  // From now on the scale lies on `device`, and the methods with OnDevice in their names take the
  // place of Unscale() and Update(). They ask nothing of the device. Nothing if disabled.
  void KeepOn(at::Device device);
  // A float scalar; undefined if disabled.
  const at::Tensor& ScaleOnDevice() const { return device_scale_; }
  // Divides the gradients by the scale, in place. Returns a float scalar, the same at each call: 1
  // if any of them was not finite, else 0. Undefined if disabled.
  const at::Tensor& UnscaleOnDevice(const std::vector<at::Tensor>& gradients);
  // By what UnscaleOnDevice() has found.
  void UpdateOnDevice();

  // What a checkpoint holds.
  struct State {
    double scale = 1;
    std::int64_t steps_since_growth = 0;
  };
  State state() const;
  void Restore(const State& state);

 private:
  double scale_;
  std::int64_t steps_since_growth_ = 0;
  const bool enabled_;
  // Defined after KeepOn().
  at::Tensor device_scale_;
  at::Tensor device_steps_since_growth_;
  at::Tensor found_inf_;
};

}  // namespace ddprun
