// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/nvml.h"

#include <dlfcn.h>

#include "absl/strings/str_format.h"

namespace ddprun {
namespace {

constexpr char kLibrary[] = "libnvidia-ml.so.1";
// Of nvml.h, whose functions and numbers stay as they are.
constexpr int kSuccess = 0;
constexpr int kNoPermission = 4;
constexpr int kDriverNotLoaded = 9;
constexpr int kLibraryNotFound = 12;
constexpr int kUncorrected = 1;
constexpr int kVolatile = 0;
constexpr std::size_t kUuidBytes = 96;

using Device = void*;
struct Memory {
  unsigned long long total, free, used;
};
struct PciInfo {
  char old_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};

// A function of the library, found by its name. Calls of one that it lacks fail.
template <typename... Arguments>
class Function {
 public:
  Function(void* library, const char* name)
      : function_(reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name))) {}
  int operator()(Arguments... arguments) const {
    return function_ == nullptr ? kLibraryNotFound : function_(arguments...);
  }

 private:
  int (*function_)(Arguments...);
};

std::string ErrorText(void* library, int error) {
  const auto text = reinterpret_cast<const char* (*)(int)>(dlsym(library, "nvmlErrorString"));
  return text == nullptr ? absl::StrFormat("error %d", error) : text(error);
}

void ReadMemory(void* library, Device device, GpuHealth& gpu) {
  Memory memory{};
  if (Function<Device, Memory*>(library, "nvmlDeviceGetMemoryInfo")(device, &memory) == kSuccess) {
    gpu.memory_total = memory.total;
    gpu.memory_used = memory.used;
  }
  unsigned long long errors = 0;
  const Function<Device, int, int, unsigned long long*> ecc(library, "nvmlDeviceGetTotalEccErrors");
  if (ecc(device, kUncorrected, kVolatile, &errors) == kSuccess) gpu.ecc_errors = errors;
  // Rows are since Ampere, pages were before.
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0, pages = 0;
  const Function<Device, unsigned*, unsigned*, unsigned*, unsigned*> rows(
      library, "nvmlDeviceGetRemappedRows");
  if (rows(device, &corrected, &uncorrected, &pending, &failed) == kSuccess)
    gpu.repair_failed = failed != 0;
  const Function<Device, unsigned*> retired(library, "nvmlDeviceGetRetiredPagesPendingStatus");
  if (retired(device, &pages) != kSuccess) pages = 0;
  gpu.repair_pending = pending != 0 || pages != 0;
}

GpuHealth ReadGpu(void* library, unsigned index) {
  GpuHealth gpu{.index = static_cast<int>(index)};
  Device device = nullptr;
  const int error =
      Function<unsigned, Device*>(library, "nvmlDeviceGetHandleByIndex_v2")(index, &device);
  if (error != kSuccess) {
    if (error != kNoPermission) gpu.error = ErrorText(library, error);
    return gpu;
  }
  char uuid[kUuidBytes] = "";
  if (Function<Device, char*, unsigned>(library, "nvmlDeviceGetUUID")(device, uuid, kUuidBytes) ==
      kSuccess)
    gpu.uuid = uuid;
  PciInfo pci{};
  if (Function<Device, PciInfo*>(library, "nvmlDeviceGetPciInfo_v3")(device, &pci) == kSuccess)
    gpu.pci = absl::StrFormat("%04x:%02x:%02x", pci.domain, pci.bus, pci.device);
  ReadMemory(library, device, gpu);
  return gpu;
}

}  // namespace

NvmlReport ReadNvml() {
  NvmlReport report;
  // Stays open: what it has started has no use for a library that is gone.
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return report;
  const int error = Function<>(library, "nvmlInit_v2")();
  if (error != kSuccess) {
    if (error != kDriverNotLoaded && error != kLibraryNotFound && error != kNoPermission)
      report.error = ErrorText(library, error);
    return report;
  }
  unsigned count = 0;
  if (Function<unsigned*>(library, "nvmlDeviceGetCount_v2")(&count) != kSuccess) count = 0;
  for (unsigned index = 0; index < count; ++index) report.gpus.push_back(ReadGpu(library, index));
  Function<>(library, "nvmlShutdown")();
  return report;
}

}  // namespace ddprun
