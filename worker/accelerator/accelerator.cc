// SPDX-License-Identifier: Apache-2.0
#include "worker/accelerator/accelerator.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace ddprun {
namespace {

constexpr const char* kModuleName = "libddprun_cuda.so";

// Beside the program, or in bin/ beside its folder; else where the program's RUNPATH says.
std::filesystem::path FindModule() {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& candidate : {folder / kModuleName, folder.parent_path() / "bin" / kModuleName}) {
    std::error_code ignored;
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return kModuleName;
}

Accelerator& OpenModule() {
  const std::filesystem::path path = FindModule();
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr)
    throw std::runtime_error(std::string("GPU support cannot be loaded: ") + dlerror() +
                             "; build with a LibTorch that has CUDA, or choose the CPU (for "
                             "`train`: --device cpu)");
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

// "GPU-5cf1fd5e-...", as nvidia-smi writes it.
std::string UuidText(const unsigned char (&uuid)[16]) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < std::size(uuid); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    for (const int digit : {uuid[i] >> 4, uuid[i] & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

}  // namespace

std::vector<std::string> DriverDevices() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return {};
  // The driver's C interface, which is stable; its header comes only with CUDA. Zero is success.
  const auto initialize = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const auto get_device = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto get_uuid =
      reinterpret_cast<int (*)(unsigned char*, int)>(dlsym(driver, "cuDeviceGetUuid"));
  int count = 0;
  if (initialize == nullptr || get_count == nullptr || get_device == nullptr ||
      get_uuid == nullptr || initialize(0) != 0 || get_count(&count) != 0) {
    return {};
  }
  std::vector<std::string> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    unsigned char uuid[16] = {};
    if (get_device(&device, ordinal) != 0 || get_uuid(uuid, device) != 0) return {};
    devices.push_back(UuidText(uuid));
  }
  return devices;  // the driver stays loaded: it cannot be initialised twice
}

int DriverDeviceCount() { return static_cast<int>(DriverDevices().size()); }

Accelerator& LoadAccelerator() {
  static Accelerator& accelerator = OpenModule();
  return accelerator;
}

}  // namespace ddprun
