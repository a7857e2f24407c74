// SPDX-License-Identifier: Apache-2.0
#include "worker/library/accelerator/accelerator.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
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
                             "; build with a LibTorch that has CUDA, or choose the CPU");
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

constexpr int kSuccess = 0;
constexpr int kNoDevice = 100;

// The driver's C interface, which is stable; its header comes only with CUDA.
struct Driver {
  explicit Driver(void* library) {
    Find(library, "cuInit", initialize);
    Find(library, "cuDeviceGetCount", get_count);
    Find(library, "cuDeviceGet", get_device);
    Find(library, "cuDeviceGetUuid", get_uuid);
    Find(library, "cuGetErrorString", get_error_text);
  }

  bool usable() const {
    return initialize != nullptr && get_count != nullptr && get_device != nullptr &&
           get_uuid != nullptr;
  }

  std::string ProblemOf(int error) const {
    if (error == kSuccess || error == kNoDevice) {
      if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) return "";
      return "an NVIDIA driver is installed, but shows no CUDA device; see what nvidia-smi says, "
             "or choose the CPU";
    }
    const char* text = nullptr;
    if (get_error_text != nullptr) get_error_text(error, &text);
    return "the NVIDIA driver fails with error " + std::to_string(error) +
           (text == nullptr ? "" : " (" + std::string(text) + ")") +
           "; see what nvidia-smi says (where GPUs are connected by NVSwitch, "
           "nvidia-fabricmanager must run), or choose the CPU";
  }

  int (*initialize)(unsigned) = nullptr;
  int (*get_count)(int*) = nullptr;
  int (*get_device)(int*, int) = nullptr;
  int (*get_uuid)(unsigned char*, int) = nullptr;
  int (*get_error_text)(int, const char**) = nullptr;

 private:
  template <typename Function>
  static void Find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
  }
};

}  // namespace

DriverView AskDriver() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return {};
  const Driver driver(library);
  if (!driver.usable())
    return {.problem =
                "libcuda.so.1 is not an NVIDIA driver's; reinstall the driver, or choose the CPU"};
  int count = 0;
  int error = driver.initialize(0);
  if (error == kSuccess) error = driver.get_count(&count);
  DriverView view;
  for (int ordinal = 0; error == kSuccess && ordinal < count; ++ordinal) {
    int device = 0;
    unsigned char uuid[16] = {};
    error = driver.get_device(&device, ordinal);
    if (error == kSuccess) error = driver.get_uuid(uuid, device);
    view.devices.push_back(UuidText(uuid));
  }
  if (error != kSuccess) view.devices.clear();
  if (view.devices.empty()) view.problem = driver.ProblemOf(error);
  return view;  // the driver stays loaded: it cannot be initialised twice
}

std::vector<std::string> DriverDevices() { return AskDriver().devices; }

int DriverDeviceCount() { return static_cast<int>(DriverDevices().size()); }

Accelerator& LoadAccelerator() {
  static Accelerator& accelerator = OpenModule();
  return accelerator;
}

}  // namespace ddprun
