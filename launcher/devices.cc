// SPDX-License-Identifier: Apache-2.0
#include "launcher/devices.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

int CountEntries(const char* path, const std::function<bool(absl::string_view)>& counts) {
  DIR* folder = opendir(path);
  if (folder == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(folder)) count += counts(entry->d_name) ? 1 : 0;
  closedir(folder);
  return count;
}

}  // namespace

int CountGpuDevices() {
  const int nodes = CountEntries("/dev", [](absl::string_view name) {
    return absl::StartsWith(name, "nvidia") && name.size() > 6 &&
           std::all_of(name.begin() + 6, name.end(), absl::ascii_isdigit);
  });
  if (nodes > 0) return nodes;
  return CountEntries("/proc/driver/nvidia/gpus",
                      [](absl::string_view name) { return name[0] != '.'; });
}

int CountCpus() {
  // Large enough for the machines of today; where the kernel knows more CPUs than that the call
  // fails.
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

int CountVisibleGpus(int devices, const std::optional<std::string>& cuda_visible_devices) {
  if (!cuda_visible_devices.has_value() || devices == 0) return devices;
  int count = 0;
  for (absl::string_view entry : absl::StrSplit(*cuda_visible_devices, ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    if (entry.empty() || entry[0] == '-' || entry == "NoDevFiles" || entry == "void" ||
        entry == "none")
      break;
    ++count;
  }
  return count;
}

absl::StatusOr<int> LocalWorldSize(const Options& options, int gpus, int cpus) {
  switch (options.proc_per_node) {
    case ProcPerNode::kNumber:
      return options.proc_per_node_number;
    case ProcPerNode::kAuto:
      return gpus > 0 ? gpus : cpus;
    case ProcPerNode::kGpu:
      if (gpus > 0) return gpus;
      return absl::NotFoundError(
          "--nproc-per-node gpu, but no NVIDIA GPU is visible here (/dev/nvidia0, "
          "CUDA_VISIBLE_DEVICES); give a number, "
          "or cpu");
    case ProcPerNode::kCpu:
      return cpus;
  }
  return absl::InternalError("unknown --nproc-per-node");
}

}  // namespace ddprun
