// SPDX-License-Identifier: Apache-2.0
#include "worker/library/accelerator/cuda_kernels.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <stdexcept>
#include <vector>

#include "worker/library/accelerator/kernel_images.h"

namespace ddprun {

std::vector<KernelModule>& KernelModules() {
  static std::vector<KernelModule> modules;
  return modules;
}

CudaKernels::CudaKernels(int device, int multiprocessors)
    : device_(device), multiprocessors_(multiprocessors) {}

std::unique_ptr<CudaKernels> CudaKernels::Load(int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  const c10::cuda::CUDAGuard guard(index);
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(index);
  const int capability = 10 * properties->major + properties->minor;
  if (KernelModules().empty()) return nullptr;
  std::unique_ptr<CudaKernels> loaded(new CudaKernels(device, properties->multiProcessorCount));
  for (const KernelModule& module : KernelModules()) {
    const KernelImage* image = ImageFor(module, capability);
    if (image == nullptr) return nullptr;
    // Never unloaded: a captured graph may be replayed as long as the process lives.
    cudaLibrary_t library = nullptr;
    C10_CUDA_CHECK(cudaLibraryLoadData(&library, image->image.data(), nullptr, nullptr, 0, nullptr,
                                       nullptr, 0));
    for (const std::string& name : module.kernels) {
      cudaKernel_t kernel = nullptr;
      C10_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library, name.c_str()));
      // CUDA loads lazily; what is loaded now need not be loaded while a graph is captured.
      cudaFuncAttributes attributes{};
      C10_CUDA_CHECK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)));
      loaded->kernels_.emplace(name, kernel);
    }
  }
  return loaded;
}

void CudaKernels::Launch(std::string_view name, const LaunchShape& shape,
                         std::span<const KernelArgument> arguments) {
  const auto kernel = kernels_.find(name);
  if (kernel == kernels_.end()) throw std::out_of_range("no kernel " + std::string(name));
  std::vector<void*> values;
  values.reserve(arguments.size());
  for (const KernelArgument& argument : arguments)
    values.push_back(const_cast<void*>(argument.value));
  const auto index = static_cast<c10::DeviceIndex>(device_);
  const c10::cuda::CUDAGuard guard(index);
  // The C interface takes a cudaKernel_t for a function.
  C10_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel->second),
                                  dim3(shape.blocks, shape.blocks_y), dim3(shape.threads),
                                  values.data(), /*sharedMem=*/0,
                                  c10::cuda::getCurrentCUDAStream(index).stream()));
}

}  // namespace ddprun
