// SPDX-License-Identifier: Apache-2.0
#include "worker/train/parallel/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <cstdlib>

namespace ddprun {

std::optional<at::ScalarType> AutocastType(Amp amp, at::Device device) {
  if (amp == Amp::kAuto) return device.is_cuda() ? std::optional(at::kBFloat16) : std::nullopt;
  if (amp == Amp::kOff) return std::nullopt;
  if (amp == Amp::kBf16) return at::kBFloat16;
  if (amp == Amp::kFp16Pure) return at::kHalf;
  if (!device.is_cuda())
    throw UsageError("--amp fp16 needs a CUDA device, but this rank's is " + device.str() +
                     "; take --amp bf16, which CPUs know as well, or off");
  return at::kHalf;
}

GradScaler MakeGradScaler(const Config& config, at::Device device) {
  if (config.amp == Amp::kFp16Pure)
    return GradScaler::Fixed(static_cast<double>(config.batch_size), device);
  return {config.amp == Amp::kFp16, device};
}

Autocast::Autocast(at::Device device, std::optional<at::ScalarType> type)
    : device_(device.type()),
      on_(type.has_value()),
      was_enabled_(on_ && at::autocast::is_autocast_enabled(device_)),
      old_type_(on_ ? at::autocast::get_autocast_dtype(device_) : at::kFloat) {
  if (!on_) return;
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *type);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!on_) return;
  // Casts of weights are kept within the outermost scope only: a step changes the weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, old_type_);
  at::autocast::set_autocast_enabled(device_, was_enabled_);
}

void UseDeterministicAlgorithms() {
  // cuBLAS reads it when it is first used (torch's documentation of use_deterministic_algorithms).
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  // LibTorch would fill each new tensor with NaN, a tenth of a step, to show reads of memory that
  // nothing wrote. Operations that are deterministic do not read any.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

void UseFastestKernels() { at::globalContext().setBenchmarkCuDNN(true); }

}  // namespace ddprun
