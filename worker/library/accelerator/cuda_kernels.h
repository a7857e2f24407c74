// SPDX-License-Identifier: Apache-2.0
// Part of libddprun_cuda.so: the kernels of worker/train/kernels on one device.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "worker/library/accelerator/kernel_launcher.h"

namespace ddprun {

class CudaKernels : public KernelLauncher {
 public:
  // Null if the device is too old, or if this build has no kernels. Throws c10::Error if they
  // cannot be loaded.
  static std::unique_ptr<CudaKernels> Load(int device);

  int multiprocessors() const override { return multiprocessors_; }
  void Launch(std::string_view name, const LaunchShape& shape,
              std::span<const KernelArgument> arguments) override;

 private:
  CudaKernels(int device, int multiprocessors);

  const int device_;
  const int multiprocessors_;
  std::map<std::string, cudaKernel_t, std::less<>> kernels_;
};

}  // namespace ddprun
