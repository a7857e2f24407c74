// SPDX-License-Identifier: Apache-2.0
#include "worker/train/kernels/kernels.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <stdexcept>

#include "worker/library/accelerator/accelerator.h"
#include "worker/library/base/first_line.h"

namespace ddprun {
namespace {

std::atomic<bool> use_fused_kernels{true};
std::atomic<KernelLauncher*> on_cpu{nullptr};

}  // namespace

KernelLauncher* KernelsFor(at::Device device) {
  if (!use_fused_kernels) return nullptr;
  if (device.is_cpu()) return on_cpu;
  if (!device.is_cuda()) return nullptr;
  try {
    return LoadAccelerator().Kernels(device.index());
  } catch (const c10::Error& error) {
    throw std::runtime_error("the fused kernels cannot be loaded on " + device.str() + ": " +
                             FirstLine(error) + "; pass --no-fused-kernels");
  }
}

void UseFusedKernels(bool on) { use_fused_kernels = on; }

bool IsKernelType(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

std::string KernelName(const char* name, at::ScalarType type) {
  TORCH_INTERNAL_ASSERT(IsKernelType(type));
  const char* suffix = type == at::kFloat ? "_float" : type == at::kHalf ? "_fp16" : "_bf16";
  return std::string(name) + suffix;
}

KernelsOnCpu::KernelsOnCpu(KernelLauncher& launcher) { on_cpu = &launcher; }
KernelsOnCpu::~KernelsOnCpu() { on_cpu = nullptr; }

}  // namespace ddprun
