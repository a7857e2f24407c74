// SPDX-License-Identifier: Apache-2.0
// The kernels of this folder: which device has them. Callers take LibTorch's operations elsewhere.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "worker/library/accelerator/kernel_launcher.h"

namespace ddprun {

// Null where tensors are on a CPU, the GPU is older than compute capability 8.0, or
// UseFusedKernels(false) was called. The first call for a device loads the kernels there, so it
// must come before a graph is captured. From any thread. Throws std::runtime_error if they cannot
// be loaded.
KernelLauncher* KernelsFor(at::Device device);

// For the whole process; on at first.
void UseFusedKernels(bool on);

// Whether kernels are made for tensors of this type.
bool IsKernelType(at::ScalarType type);

// "make_batch" and kBFloat16: "make_batch_bf16", as the sources have it.
std::string KernelName(const char* name, at::ScalarType type);

// For tests: tensors on the CPU have `launcher`'s kernels as long as it lives.
class KernelsOnCpu {
 public:
  explicit KernelsOnCpu(KernelLauncher& launcher);
  ~KernelsOnCpu();
  KernelsOnCpu(const KernelsOnCpu&) = delete;
  KernelsOnCpu& operator=(const KernelsOnCpu&) = delete;
};

}  // namespace ddprun
