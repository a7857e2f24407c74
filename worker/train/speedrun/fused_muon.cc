// SPDX-License-Identifier: Apache-2.0
#include "worker/train/speedrun/fused_muon.h"

#include <ATen/ops/_foreach_norm.h>

#include <algorithm>
#include <array>
#include <functional>

#include "worker/train/kernels/kernels.h"
#include "worker/train/kernels/muon_tensors.cuh"

namespace ddprun {
namespace {

constexpr unsigned kMuonThreads = 256;

device::MuonTensor MuonTensorOf(const FusedMuon::Item& item, const at::Tensor& norm) {
  const std::int64_t filters = item.weight.size(0);
  return {.weight = item.weight.mutable_data_ptr<float>(),
          .gradient = item.gradient.const_data_ptr<float>(),
          .velocity = item.velocity.mutable_data_ptr<float>(),
          .cast = item.cast.defined() ? item.cast.mutable_data_ptr() : nullptr,
          .norm = norm.defined() ? norm.const_data_ptr<float>() : nullptr,
          .filters = static_cast<int>(filters),
          .numbers = static_cast<int>(item.weight.numel() / filters)};
}

template <typename T>
KernelArgument MuonArgument(const T& value) {
  return {.value = &value, .size = sizeof(value)};
}

// Calls `launch` with as many items as an argument takes, their matrices and the kernel's grid.
void ForEachLaunch(const std::vector<FusedMuon::Item>& items, const std::vector<at::Tensor>& norms,
                   const at::Tensor& matrices,
                   const std::function<void(const device::MuonTensors&, void* matrices,
                                            const LaunchShape&)>& launch) {
  constexpr auto kMost = static_cast<std::size_t>(device::kMuonTensorsMax);
  for (std::size_t begin = 0; begin < items.size(); begin += kMost) {
    const std::size_t end = std::min(items.size(), begin + kMost);
    device::MuonTensors tensors{};
    int blocks = 0;
    for (std::size_t i = begin; i < end; ++i) {
      tensors.tensor[i - begin] = MuonTensorOf(items[i], norms.empty() ? at::Tensor() : norms[i]);
      blocks +=
          static_cast<int>((items[i].weight.numel() + device::kMuonChunk - 1) / device::kMuonChunk);
      tensors.block_end[i - begin] = blocks;
    }
    launch(tensors, matrices[static_cast<std::int64_t>(begin)].mutable_data_ptr(),
           {.blocks = static_cast<unsigned>(blocks), .threads = kMuonThreads});
  }
}

}  // namespace

void FusedMuon::Directions(const at::Tensor& skip, const at::Tensor& matrices) const {
  const auto momentum_float = static_cast<float>(momentum);
  const void* const skip_at = skip.defined() ? skip.const_data_ptr() : nullptr;
  const auto rows = static_cast<int>(matrices.size(1));
  const auto columns = static_cast<int>(matrices.size(2));
  ForEachLaunch(items, {}, matrices,
                [&](const device::MuonTensors& tensors, void* own, const LaunchShape& shape) {
                  const std::array arguments{MuonArgument(tensors), MuonArgument(momentum_float),
                                             MuonArgument(skip_at), MuonArgument(rows),
                                             MuonArgument(columns), MuonArgument(own)};
                  kernels.Launch(KernelName("muon_directions", matrices.scalar_type()), shape,
                                 arguments);
                });
}

void FusedMuon::Update(const at::Tensor& rate, const at::Tensor& skip,
                       const at::Tensor& matrices) const {
  std::vector<at::Tensor> weights;
  auto cast = device::MuonCast::kBFloat16;
  for (const Item& item : items) {
    weights.push_back(item.weight);
    if (item.cast.defined() && item.cast.scalar_type() == at::kHalf) cast = device::MuonCast::kHalf;
  }
  const std::vector<at::Tensor> norms = at::_foreach_norm(weights);
  const void* const rate_at = rate.const_data_ptr();
  const void* const skip_at = skip.defined() ? skip.const_data_ptr() : nullptr;
  const auto rows = static_cast<int>(matrices.size(1));
  const auto columns = static_cast<int>(matrices.size(2));
  ForEachLaunch(
      items, norms, matrices,
      [&](const device::MuonTensors& tensors, void* own, const LaunchShape& shape) {
        const std::array arguments{
            MuonArgument(tensors), MuonArgument(rate_at), MuonArgument(skip_at), MuonArgument(rows),
            MuonArgument(columns), MuonArgument(own),     MuonArgument(cast)};
        kernels.Launch(KernelName("muon_update", matrices.scalar_type()), shape, arguments);
      });
}

}  // namespace ddprun
