// SPDX-License-Identifier: Apache-2.0
// The GPUs and other accelerators that workers may use, by name or number as in
// CUDA_VISIBLE_DEVICES and --gpus. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun {

enum class DeviceKind { kNvidia, kRocm, kXpu, kNpu };

// The variable that limits what a process sees of them: "CUDA_VISIBLE_DEVICES".
const char* VisibleVariable(DeviceKind kind);

// In the order of nvidia-smi, which is CUDA's if all GPUs are of one kind.
struct Gpu {
  std::string uuid;  // "GPU-..."; empty: not known
  int node = 0;      // NUMA node; -1: not known
};

// What CUDA_VISIBLE_DEVICES leaves to a program of `devices` GPUs, as entries of that variable. Its
// list ends at the first number that no device has, as in CUDA; devices of MIG count one each.
std::vector<std::string> VisibleGpus(int devices,
                                     const std::optional<std::string>& cuda_visible_devices);

// Picks those of the visible entries that --gpus names: a number counts the visible ones from 0, as
// programs number them; an id (or its beginning) names one of them. Nothing `wanted` means all of
// them. NOT_FOUND: one sentence for people.
absl::StatusOr<std::vector<std::string>> ChooseGpus(const std::vector<std::string>& visible,
                                                    const std::vector<std::string>& wanted,
                                                    const std::vector<Gpu>& gpus,
                                                    DeviceKind kind = DeviceKind::kNvidia);

// The GPUs that these entries mean, in their order; an entry that means none is left out.
std::vector<Gpu> GpusOf(const std::vector<std::string>& entries, const std::vector<Gpu>& gpus);

// The NUMA node of an entry. NOT_FOUND: the entry does not identify a GPU.
absl::StatusOr<int> NodeOfGpu(const std::string& entry, const std::vector<Gpu>& gpus);

}  // namespace ddprun
