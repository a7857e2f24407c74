// SPDX-License-Identifier: Apache-2.0
// Numeric modes of a step: mixed precision (torch.autocast) and determinism.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "worker/train/config/config.h"
#include "worker/train/optimizer/grad_scaler.h"

namespace ddprun {

// The type of `amp` on `device`; none without mixed precision. Throws UsageError for fp16 on a CPU.
std::optional<at::ScalarType> AutocastType(Amp amp, at::Device device);

// That which `config.amp` asks for. fp16-pure multiplies with the images of a rank's batch: the
// loss is their sum, whose gradients are large enough for fp16.
GradScaler MakeGradScaler(const Config& config, at::Device device);

// torch.autocast(device.type, dtype=type) for as long as it lives; nothing without a type. For the
// thread that makes it.
class Autocast {
 public:
  Autocast(at::Device device, std::optional<at::ScalarType> type);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const at::DeviceType device_;
  const bool on_;
  const bool was_enabled_;
  const at::ScalarType old_type_;
};

// torch.use_deterministic_algorithms(True): an operation that cannot give the same bits each time
// is an error. Of the whole process.
void UseDeterministicAlgorithms();

// cuDNN measures its kernels for each shape and takes the fastest (torch.backends.cudnn.benchmark).
// Applies to the whole process; not with UseDeterministicAlgorithms().
void UseFastestKernels();

}  // namespace ddprun
