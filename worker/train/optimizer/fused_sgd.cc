// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizer/fused_sgd.h"

#include <algorithm>
#include <array>
#include <string>

#include "worker/train/kernels/kernels.h"
#include "worker/train/kernels/sgd_tensors.cuh"

namespace ddprun {
namespace {

constexpr unsigned kThreads = 256;

device::SgdTensor ArgumentOf(const FusedSgd::Item& item) {
  return {.parameter = item.parameter.mutable_data_ptr<float>(),
          .gradient = item.gradient.const_data_ptr<float>(),
          .velocity = item.velocity.defined() ? item.velocity.mutable_data_ptr<float>() : nullptr,
          .cast = item.cast.defined() ? item.cast.mutable_data_ptr() : nullptr,
          .size = item.parameter.numel()};
}

template <typename T>
KernelArgument Argument(const T& value) {
  return {.value = &value, .size = sizeof(value)};
}

}  // namespace

KernelLauncher* SgdKernels(const NamedTensors& parameters) {
  if (parameters.empty()) return nullptr;
  const at::Device device = parameters[0].second.device();
  const bool taken = std::all_of(parameters.begin(), parameters.end(), [&](const auto& entry) {
    const at::Tensor& parameter = entry.second;
    return parameter.device() == device && parameter.scalar_type() == at::kFloat &&
           parameter.is_non_overlapping_and_dense();
  });
  return taken ? KernelsFor(device) : nullptr;
}

void FusedSgd::Step(const std::vector<Item>& items, const at::Tensor& rate,
                    const at::Tensor& skip) const {
  const auto momentum_float = static_cast<float>(momentum);
  const auto decay_float = static_cast<float>(decay);
  const at::Tensor rate_float = rate.to(at::kFloat);
  const void* const rate_at = rate_float.const_data_ptr();
  const void* const skip_at = skip.defined() ? skip.const_data_ptr() : nullptr;
  for (std::size_t begin = 0; begin < items.size(); begin += device::kSgdTensorsMax) {
    const std::size_t end =
        std::min(items.size(), begin + static_cast<std::size_t>(device::kSgdTensorsMax));
    device::SgdTensors tensors{};
    at::ScalarType type = at::kFloat;
    int blocks = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const device::SgdTensor tensor = ArgumentOf(items[i]);
      if (items[i].cast.defined()) type = items[i].cast.scalar_type();
      blocks += static_cast<int>((tensor.size + device::kSgdChunk - 1) / device::kSgdChunk);
      tensors.tensor[i - begin] = tensor;
      tensors.block_end[i - begin] = blocks;
    }
    if (blocks == 0) continue;
    const std::array arguments{Argument(tensors),        Argument(rate_at),     Argument(skip_at),
                               Argument(momentum_float), Argument(decay_float), Argument(nesterov)};
    kernels.Launch(KernelName("sgd_step", type),
                   {.blocks = static_cast<unsigned>(blocks), .threads = kThreads}, arguments);
  }
}

}  // namespace ddprun
