// SPDX-License-Identifier: Apache-2.0
#include "worker/train/layers/max_pool.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "worker/train/kernels/kernels.h"

namespace ddprun {
namespace {

constexpr auto kPoolFormat = at::MemoryFormat::ChannelsLast;
// The same limits as in max_pool.cu.
constexpr std::int64_t kPoolThreadsMax = 256;
constexpr std::int64_t kPoolPackBytes = 16;
constexpr std::int64_t kPoolRowsMax = std::int64_t{1} << 30;  // are counted in int

std::int64_t PoolPacks(const at::Tensor& tensor) {
  return tensor.size(1) * tensor.element_size() / kPoolPackBytes;
}

int PoolRows(const Pooled& pooled) {
  return static_cast<int>(pooled.values.numel() / pooled.values.size(1));
}

int PoolChannels(const Pooled& pooled) { return static_cast<int>(pooled.values.size(1)); }

}  // namespace

bool CanPoolByKernels(const at::Tensor& x) {
  if (!IsKernelType(x.scalar_type()) || x.dim() != 4 || !x.is_contiguous(kPoolFormat)) return false;
  const std::int64_t rows = x.size(0) * (x.size(2) / 2) * (x.size(3) / 2);
  return rows > 1 && rows <= kPoolRowsMax && x.size(1) > 0 &&
         x.size(1) * x.element_size() % kPoolPackBytes == 0 && PoolPacks(x) <= kPoolThreadsMax;
}

Pooled EmptyPooled(const at::Tensor& x) {
  const at::Tensor values = at::empty({x.size(0), x.size(1), x.size(2) / 2, x.size(3) / 2},
                                      x.options().memory_format(kPoolFormat));
  return {values, at::empty_like(values, values.options().dtype(at::kByte))};
}

LaunchShape PoolLaunch(const KernelLauncher& launcher, const Pooled& pooled, std::int64_t blocks) {
  const std::int64_t packs = PoolPacks(pooled.values);
  const std::int64_t lines = kPoolThreadsMax / packs;
  const std::int64_t most = (PoolRows(pooled) + lines - 1) / lines;
  return {.blocks = static_cast<unsigned>(std::min(most, blocks * launcher.multiprocessors())),
          .threads = static_cast<unsigned>(packs * lines)};
}

void LaunchPoolMoments(KernelLauncher& launcher, const LaunchShape& shape, const at::Tensor& x,
                       const Pooled& pooled, const at::Tensor& partial) {
  LaunchKernel(launcher, KernelName("pool_moments", x.scalar_type()), shape, x.const_data_ptr(),
               PoolRows(pooled), PoolChannels(pooled), static_cast<int>(x.size(2)),
               static_cast<int>(x.size(3)), pooled.values.mutable_data_ptr(),
               pooled.places.mutable_data_ptr(), partial.mutable_data_ptr());
}

at::Tensor PoolInputGradient(KernelLauncher& launcher, const LaunchShape& shape,
                             const Pooled& pooled, const at::Tensor& gradient,
                             const at::Tensor& statistics, const at::Tensor& sums,
                             const at::Tensor& weight, std::int64_t height, std::int64_t width) {
  const at::Tensor& values = pooled.values;
  at::Tensor x_gradient = at::empty({values.size(0), values.size(1), height, width},
                                    values.options().memory_format(kPoolFormat));
  LaunchKernel(launcher, KernelName("pool_input_gradient", values.scalar_type()), shape,
               values.const_data_ptr(), gradient.const_data_ptr(), statistics.const_data_ptr(),
               sums.const_data_ptr(), weight.const_data_ptr(), PoolRows(pooled),
               PoolChannels(pooled), static_cast<int>(height), static_cast<int>(width),
               pooled.places.const_data_ptr(), x_gradient.mutable_data_ptr());
  return x_gradient;
}

}  // namespace ddprun
