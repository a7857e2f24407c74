// SPDX-License-Identifier: Apache-2.0
// Runs kernels of worker/train/kernels on the CPU, as they are: block after block, each thread of a
// block a fiber, so that __syncthreads() works; in every second block the last thread comes first.
// A KernelLauncher: what calls a kernel is tested with it. A file that includes a .cu includes
// cuda_words.h first.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "worker/library/accelerator/kernel_launcher.h"

namespace ddprun::emulator {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

// Indices of the fiber that runs.
extern thread_local Index thread_index;
extern thread_local Index block_index;
extern thread_local Index block_size;
extern thread_local Index grid_size;

// Until all threads of the block are here. Throws std::logic_error, from Launch(), if one never
// comes.
void SynchronizeBlock();
unsigned short BFloat16OfFloat(float value);
unsigned short HalfOfFloat(float value);
float FloatOfHalfBits(unsigned short bits);

}  // namespace ddprun::emulator

namespace ddprun {

class CudaEmulator : public KernelLauncher {
 public:
  explicit CudaEmulator(int multiprocessors) : multiprocessors_(multiprocessors) {}

  template <typename... Parameters>
  void Add(const std::string& name, void (*kernel)(Parameters...)) {
    kernels_[name] = {.sizes = {sizeof(Parameters)...},
                      .run = [kernel](std::span<const KernelArgument> arguments) {
                        CallWith(kernel, arguments, std::index_sequence_for<Parameters...>());
                      }};
  }

  std::vector<std::string> names() const;
  // How often each kernel was launched since the last call.
  std::map<std::string, int> TakeLaunches();

  int multiprocessors() const override { return multiprocessors_; }
  // Throws std::logic_error if the arguments are not the kernel's by number and size.
  void Launch(std::string_view name, const LaunchShape& shape,
              std::span<const KernelArgument> arguments) override;

 private:
  struct Kernel {
    std::vector<std::size_t> sizes;  // of the parameters
    std::function<void(std::span<const KernelArgument>)> run;
  };

  template <typename... Parameters, std::size_t... I>
  static void CallWith(void (*kernel)(Parameters...),
                       [[maybe_unused]] std::span<const KernelArgument> arguments,
                       std::index_sequence<I...>) {
    kernel(*static_cast<const Parameters*>(arguments[I].value)...);
  }

  const int multiprocessors_;
  std::map<std::string, Kernel, std::less<>> kernels_;
  std::mutex mutex_;
  std::map<std::string, int> launches_;
};

}  // namespace ddprun
