// SPDX-License-Identifier: Apache-2.0
// How long a device takes to make a batch out of a set of CIFAR-10's size in its memory (gather,
// crop, mirror, normalise); on a GPU as part of a CUDA graph, as in a step. For each size a line
//   batch 512 microseconds 12.3 without kernels 45.6
// the second of which is with --no-fused-kernels. tests/gpu/speed_checks.py reads it; nothing is
// asked of the figures here.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <vector>

#include "tests/gpu/device_time.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/train/kernels/kernels.h"
#include "worker/train/loader/gpu_images.h"

namespace ddprun {
namespace {

constexpr std::int64_t kImages = 50'000;

at::Tensor RowsOf(const GpuImages& images, std::int64_t batch) {
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < batch; ++i) samples.push_back({(i * 7919) % kImages, i});
  return images.Rows(samples, Draw{});
}

double TimeOf(const GpuImages& images, const GpuImages::Request& request, bool gpu) {
  GpuImages::Batch kept;
  const auto make = [&] { kept = images.Make(request); };
  return gpu ? GraphMicroseconds(make) : MedianMicroseconds(1, make, [] {});
}

TEST(BatchSpeed, OfImagesInTheDevicesMemory) {
  const bool gpu = DriverDeviceCount() > 0;
  if (gpu) LoadAccelerator().SetDevice(0);
  if (gpu) LoadAccelerator().UseOwnStream(0);
  const at::Device device = gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const FixedSizeImages set(
      {{at::randint(256, {kImages, 3, 32, 32}, at::kByte), at::randint(10, {kImages}, at::kLong)}},
      {.shape = {3, 32, 32}, .mean = {0.49f, 0.48f, 0.45f}, .std = {0.25f, 0.24f, 0.26f}});
  const GpuImages images(set, {}, device);
  for (const std::int64_t batch : {128, 512, 1024}) {
    const GpuImages::Request request{
        .rows = RowsOf(images, batch).to(device), .count = batch, .type = at::kBFloat16};
    const double by_kernel = TimeOf(images, request, gpu);
    UseFusedKernels(false);
    const double by_operations = TimeOf(images, request, gpu);
    UseFusedKernels(true);
    EXPECT_GT(by_kernel, 0);
    std::printf("batch %lld microseconds %.2f without kernels %.2f\n",
                static_cast<long long>(batch), by_kernel, by_operations);
  }
}

}  // namespace
}  // namespace ddprun
