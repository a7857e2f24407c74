// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of worker/train/kernels/*.cu. No CUDA and no LibTorch here: the tests
// implement it for the CPU.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

namespace ddprun {

struct LaunchShape {
  unsigned blocks = 1;    // gridDim.x
  unsigned blocks_y = 1;  // gridDim.y
  unsigned threads = 1;   // of a block: blockDim.x
};

// By value; its size is what the kernel declares.
struct KernelArgument {
  const void* value = nullptr;
  std::size_t size = 0;
};

// Launches kernels on one device.
class KernelLauncher {
 public:
  virtual ~KernelLauncher() = default;

  virtual int multiprocessors() const = 0;

  // Queues a kernel on the calling thread's current stream of the device; a graph can be captured
  // of it. Throws c10::Error, and std::out_of_range if there is no kernel of that name.
  virtual void Launch(std::string_view name, const LaunchShape& shape,
                      std::span<const KernelArgument> arguments) = 0;
};

// The arguments' types are exactly those of the kernel's parameters.
template <typename... Arguments>
void LaunchKernel(KernelLauncher& launcher, std::string_view name, const LaunchShape& shape,
                  const Arguments&... arguments) {
  static_assert((std::is_scalar_v<Arguments> && ...));
  const std::array<KernelArgument, sizeof...(Arguments)> list{
      {{.value = &arguments, .size = sizeof(arguments)}...}};
  launcher.Launch(name, shape, list);
}

}  // namespace ddprun
