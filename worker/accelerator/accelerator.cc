// SPDX-License-Identifier: Apache-2.0
#include "worker/accelerator/accelerator.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace ddprun {
namespace {

constexpr const char* kModuleName = "libddprun_cuda.so";

std::filesystem::path FindModule() {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& candidate : {folder / kModuleName, folder.parent_path() / "bin" / kModuleName}) {
    std::error_code ignored;
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  throw std::runtime_error(
      std::string(kModuleName) + " is not in " + folder.string() +
      ": this build has no GPU support; build with a LibTorch that has CUDA, or use "
      "--backend gloo");
}

Accelerator& OpenModule() {
  const std::filesystem::path path = FindModule();
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr)
    throw std::runtime_error(std::string("GPU support cannot be loaded: ") + dlerror());
  void* symbol = dlsym(module, kAcceleratorSymbol);
  Accelerator* accelerator =
      symbol == nullptr ? nullptr
                        : reinterpret_cast<AcceleratorFunction>(symbol)(kAcceleratorInterface);
  if (accelerator == nullptr) {
    throw std::runtime_error(path.string() +
                             " belongs to another build of this program: build both anew");
  }
  return *accelerator;
}

}  // namespace

int DriverDeviceCount() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return 0;
  // The driver's C interface, which is stable; its header comes only with CUDA. Zero is success.
  const auto initialize = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int count = 0;
  if (initialize == nullptr || get_count == nullptr || initialize(0) != 0 ||
      get_count(&count) != 0) {
    return 0;
  }
  return count;  // the driver stays loaded: it cannot be initialised twice
}

Accelerator& LoadAccelerator() {
  static Accelerator& accelerator = OpenModule();
  return accelerator;
}

}  // namespace ddprun
