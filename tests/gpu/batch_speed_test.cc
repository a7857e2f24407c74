// SPDX-License-Identifier: Apache-2.0
// How long a device takes to make a batch out of a set of CIFAR-10's size in its memory (gather,
// crop, mirror, normalise); on a GPU as part of a CUDA graph, as in a step. For each size a line
//   batch 512 microseconds 12.3
// the median of kRuns runs. tests/gpu/speed_checks.py reads it; nothing is asked of the figure
// here.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "worker/accelerator/accelerator.h"
#include "worker/loader/gpu_images.h"

namespace ddprun {
namespace {

constexpr int kRuns = 9;
constexpr std::int64_t kImages = 50'000;

// Of one call of `work`, after which `synchronize` waits for the device.
double MedianMicroseconds(int calls, const std::function<void()>& work,
                          const std::function<void()>& synchronize) {
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) work();
    synchronize();
    const std::chrono::duration<double, std::micro> passed =
        std::chrono::steady_clock::now() - begin;
    times.push_back(passed.count() / calls);
  }
  std::sort(times.begin(), times.end());
  return times[kRuns / 2];
}

at::Tensor RowsOf(const GpuImages& images, std::int64_t batch) {
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < batch; ++i) samples.push_back({(i * 7919) % kImages, i});
  return images.Rows(samples, Draw{});
}

double OnTheGpu(const GpuImages& images, const GpuImages::Request& request) {
  Accelerator& accelerator = LoadAccelerator();
  GpuImages::Batch kept = images.Make(request);
  const auto graph = accelerator.MakeGraph();
  graph->Capture([&] { kept = images.Make(request); });
  return MedianMicroseconds(
      200, [&] { graph->Replay(); }, [&] { accelerator.Synchronize(0); });
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
    const at::Tensor rows = RowsOf(images, batch).to(device);
    const GpuImages::Request request{.rows = rows, .count = batch, .type = at::kBFloat16};
    const double time = gpu ? OnTheGpu(images, request)
                            : MedianMicroseconds(
                                  1, [&] { images.Make(request); }, [] {});
    EXPECT_GT(time, 0);
    std::printf("batch %lld microseconds %.2f\n", static_cast<long long>(batch), time);
  }
}

}  // namespace
}  // namespace ddprun
