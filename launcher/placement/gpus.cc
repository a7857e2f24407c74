// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/gpus.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

std::optional<std::size_t> AsIndex(absl::string_view entry) {
  std::size_t index = 0;
  if (!absl::SimpleAtoi(entry, &index)) return std::nullopt;
  return index;
}

// "MIG-GPU-1a2b/1/0", the older form, has the id of its GPU inside.
absl::string_view IdOfGpu(absl::string_view entry) {
  if (absl::ConsumePrefix(&entry, "MIG-GPU-")) {
    entry = entry.substr(0, entry.find('/'));
  } else {
    absl::ConsumePrefix(&entry, "GPU-");
  }
  return entry;
}

// The GPU that a number or an id means.
const Gpu* FindGpu(absl::string_view entry, const std::vector<Gpu>& gpus) {
  if (const std::optional<std::size_t> index = AsIndex(entry); index.has_value()) {
    return *index < gpus.size() ? &gpus[*index] : nullptr;
  }
  const absl::string_view id = IdOfGpu(entry);
  for (const Gpu& gpu : gpus) {
    if (!gpu.uuid.empty() && absl::StartsWith(IdOfGpu(gpu.uuid), id)) return &gpu;
  }
  return nullptr;
}

// The visible entry that an id names: written the same way, by a beginning, or a number of the GPU
// with that id.
const std::string* FindById(const std::vector<std::string>& visible, const std::string& id,
                            const std::vector<Gpu>& gpus) {
  for (const std::string& entry : visible) {
    if (absl::StartsWith(entry, id) || absl::StartsWith(id, entry)) return &entry;
  }
  if (absl::StartsWith(id, "MIG-")) return nullptr;
  const Gpu* gpu = FindGpu(id, gpus);
  if (gpu == nullptr) return nullptr;
  for (const std::string& entry : visible) {
    if (FindGpu(entry, gpus) == gpu) return &entry;
  }
  return nullptr;
}

// What lists them by number.
const char* ListerOf(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kNvidia:
      return "nvidia-smi -L";
    case DeviceKind::kRocm:
      return "rocm-smi";
    case DeviceKind::kXpu:
      return "xpu-smi discovery";
    case DeviceKind::kNpu:
      return "npu-smi info";
  }
  return "";
}

absl::Status NotVisible(const std::string& wanted, const std::vector<std::string>& visible,
                        DeviceKind kind) {
  if (visible.empty()) {
    return absl::NotFoundError(absl::StrCat("--gpus names ", wanted,
                                            ", but no GPU or NPU is visible here; see ",
                                            VisibleVariable(kind), " and ", ListerOf(kind)));
  }
  return absl::NotFoundError(absl::StrCat("--gpus names ", wanted, ", but what is visible here is ",
                                          absl::StrJoin(visible, ","), ", numbered 0 to ",
                                          visible.size() - 1, "; see ", VisibleVariable(kind),
                                          " and ", ListerOf(kind)));
}

}  // namespace

const char* VisibleVariable(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kNvidia:
      return "CUDA_VISIBLE_DEVICES";
    case DeviceKind::kRocm:
      return "HIP_VISIBLE_DEVICES";
    case DeviceKind::kXpu:
      return "ZE_AFFINITY_MASK";
    case DeviceKind::kNpu:
      return "ASCEND_RT_VISIBLE_DEVICES";
  }
  return "";
}

std::vector<Gpu> GpusOf(const std::vector<std::string>& entries, const std::vector<Gpu>& gpus) {
  std::vector<Gpu> found;
  for (const std::string& entry : entries) {
    if (const Gpu* gpu = FindGpu(entry, gpus); gpu != nullptr) found.push_back(*gpu);
  }
  return found;
}

std::vector<std::string> VisibleGpus(int devices,
                                     const std::optional<std::string>& cuda_visible_devices) {
  std::vector<std::string> visible;
  if (!cuda_visible_devices.has_value() || devices == 0) {
    for (int index = 0; index < devices; ++index) visible.push_back(absl::StrCat(index));
    return visible;
  }
  for (absl::string_view entry : absl::StrSplit(*cuda_visible_devices, ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    if (entry.empty() || entry[0] == '-' || entry == "NoDevFiles" || entry == "void" ||
        entry == "none")
      break;
    const std::optional<std::size_t> index = AsIndex(entry);
    if (index.has_value() && *index >= static_cast<std::size_t>(devices)) break;
    visible.emplace_back(entry);
  }
  return visible;
}

absl::StatusOr<std::vector<std::string>> ChooseGpus(const std::vector<std::string>& visible,
                                                    const std::vector<std::string>& wanted,
                                                    const std::vector<Gpu>& gpus, DeviceKind kind) {
  if (wanted.empty()) return visible;
  // Where no list limits what is visible, an id of a MIG device stands for itself: only CUDA knows
  // these.
  const bool all_are_visible =
      std::all_of(visible.begin(), visible.end(),
                  [](const std::string& entry) { return AsIndex(entry).has_value(); });
  std::vector<std::string> chosen;
  for (const std::string& name : wanted) {
    const std::optional<std::size_t> index = AsIndex(name);
    const std::string* entry = nullptr;
    if (index.has_value()) {
      if (*index < visible.size()) entry = &visible[*index];
    } else {
      entry = FindById(visible, name, gpus);
      if (entry == nullptr && all_are_visible && visible.size() == gpus.size() &&
          absl::StartsWith(name, "MIG-")) {
        entry = &name;
      }
    }
    if (entry == nullptr) return NotVisible(name, visible, kind);
    if (std::find(chosen.begin(), chosen.end(), *entry) != chosen.end()) {
      return absl::NotFoundError(
          absl::StrCat("--gpus names GPU ", *entry, " twice; name each GPU once"));
    }
    chosen.push_back(*entry);
  }
  return chosen;
}

absl::StatusOr<int> NodeOfGpu(const std::string& entry, const std::vector<Gpu>& gpus) {
  const Gpu* gpu = FindGpu(entry, gpus);
  if (gpu != nullptr && gpu->node >= 0) return gpu->node;
  // Which of the GPUs does not matter where all are at one node.
  const bool one_node = !gpus.empty() && gpus[0].node >= 0 &&
                        std::all_of(gpus.begin(), gpus.end(),
                                    [&](const Gpu& other) { return other.node == gpus[0].node; });
  if (one_node) return gpus[0].node;
  return absl::NotFoundError(
      absl::StrCat("--numa-binding needs to know where GPU ", entry,
                   " is, and its driver does not say; name GPUs by number, or leave the flag out"));
}

}  // namespace ddprun
