// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/health_rules.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/options/health_options.h"

namespace ddprun {
namespace {

// After these NVIDIA's guide says to reset the GPU or to replace it: memory (48, 64, 95, 140), the
// bus (79), NVLink (74), its own processors (62, 119, 120, 143). Others are faults of programs.
constexpr int kBadXids[] = {48, 62, 64, 74, 79, 95, 119, 120, 140, 143};

// More than what a driver keeps for itself and tools for monitoring have, less than a model.
constexpr std::uint64_t kMemoryUsedPercentMax = 10;
// A fault that is older was seen to, or is not one that stops work.
constexpr std::int64_t kXidSecondsMax = 3600;
// A checkpoint, or the logs of hours; files that a run makes on a node.
constexpr std::int64_t kDiskFreeMin = std::int64_t{1} << 30;
constexpr std::int64_t kDiskFilesFreeMin = 1000;
// 2026, in seconds since 1970: a clock without a battery begins long before.
constexpr std::int64_t kClockMin = 1'767'225'600;

template <typename... Parts>
absl::Status Unfit(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}

std::string NameOf(const GpuHealth& gpu) {
  return absl::StrCat("GPU ", gpu.index, gpu.uuid.empty() ? "" : absl::StrCat(" (", gpu.uuid, ")"));
}

std::string Reset(const GpuHealth& gpu) {
  return absl::StrCat("reset it (nvidia-smi --gpu-reset -i ", gpu.index, ") or take the node out");
}

std::vector<const GpuHealth*> UsedGpus(const HealthFacts& facts) {
  std::vector<const GpuHealth*> used;
  for (const int index : facts.gpus) {
    for (const GpuHealth& gpu : facts.nvml.gpus) {
      if (gpu.index == index) used.push_back(&gpu);
    }
  }
  return used;
}

bool IsFull(const GpuHealth& gpu) {
  return gpu.memory_total.has_value() && gpu.memory_used.has_value() &&
         *gpu.memory_used > *gpu.memory_total / 100 * kMemoryUsedPercentMax;
}

std::vector<const GpuHealth*> FullGpus(const HealthFacts& facts) {
  std::vector<const GpuHealth*> gpus = UsedGpus(facts);
  if (facts.gpus_in_use > 0 && gpus.size() > static_cast<std::size_t>(facts.gpus_in_use))
    gpus.resize(static_cast<std::size_t>(facts.gpus_in_use));
  std::erase_if(gpus, [](const GpuHealth* gpu) { return !IsFull(*gpu); });
  return gpus;
}

absl::Status CheckMemoryErrors(const GpuHealth& gpu) {
  if (gpu.repair_failed)
    return Unfit(NameOf(gpu), " has memory that could not be repaired; replace it");
  if (gpu.ecc_errors.value_or(0) > 0) {
    return Unfit(NameOf(gpu), " has ", *gpu.ecc_errors,
                 " uncorrectable ECC errors since its driver was loaded; ", Reset(gpu));
  }
  if (gpu.repair_pending)
    return Unfit(NameOf(gpu), " has memory to be repaired at its next reset; ", Reset(gpu));
  return absl::OkStatus();
}

absl::Status CheckXids(const HealthFacts& facts, const GpuHealth& gpu) {
  for (const Xid& xid : facts.xids) {
    const bool bad =
        std::find(std::begin(kBadXids), std::end(kBadXids), xid.number) != std::end(kBadXids);
    if (!bad || gpu.pci.empty() || xid.pci != gpu.pci || xid.seconds_ago > kXidSecondsMax) continue;
    return Unfit(NameOf(gpu), " had Xid ", xid.number, " ", xid.seconds_ago / 60,
                 " minutes ago (kernel log); ", Reset(gpu));
  }
  return absl::OkStatus();
}

absl::Status CheckGpus(const HealthFacts& facts) {
  if (!facts.nvml.error.empty())
    return Unfit("NVIDIA's driver does not work (NVML: ", facts.nvml.error, "); see nvidia-smi");
  if (!facts.nvml.gpus.empty() && facts.gpu_devices > static_cast<int>(facts.nvml.gpus.size())) {
    return Unfit("NVIDIA's driver has ", facts.nvml.gpus.size(), " of the ", facts.gpu_devices,
                 " GPUs in /dev; see dmesg for the one that is gone");
  }
  for (const GpuHealth* gpu : UsedGpus(facts)) {
    if (!gpu->error.empty())
      return Unfit(NameOf(*gpu), " does not answer (NVML: ", gpu->error, "); ", Reset(*gpu));
    absl::Status status = CheckMemoryErrors(*gpu);
    status.Update(CheckXids(facts, *gpu));
    if (!status.ok()) return status;
  }
  for (const GpuHealth* gpu : FullGpus(facts)) {
    return Unfit(NameOf(*gpu), " has ", BytesText(static_cast<std::int64_t>(*gpu->memory_used)),
                 " of ", BytesText(static_cast<std::int64_t>(*gpu->memory_total)),
                 " in use although no worker runs; end the process that nvidia-smi shows");
  }
  return absl::OkStatus();
}

absl::Status CheckDisk(const HealthFacts& facts) {
  for (const FolderFacts& folder : facts.folders) {
    if (!folder.error.empty()) {
      return Unfit("the folder ", folder.path, " cannot be used: ", folder.error,
                   "; mount or make it");
    }
    if (folder.read_only)
      return Unfit("the file system of ", folder.path,
                   " is read-only; see dmesg, and mount it anew");
    // A small file system, such as a container's /tmp, may be almost empty with less.
    if (folder.bytes_free < std::min(kDiskFreeMin, folder.bytes / 20)) {
      return Unfit("the file system of ", folder.path, " has ", BytesText(folder.bytes_free),
                   " left of ", BytesText(folder.bytes), "; make room");
    }
    if (folder.files > 0 && folder.files_free < std::min(kDiskFilesFreeMin, folder.files / 20)) {
      return Unfit("the file system of ", folder.path, " has room for ", folder.files_free,
                   " more files (df -i); remove some");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckClock(const HealthFacts& facts) {
  if (facts.unix_seconds >= kClockMin) return absl::OkStatus();
  return Unfit("the clock is at ", facts.unix_seconds,
               " s after 1970, years before this version of ddprun; set it (chronyc makestep)");
}

std::string PortText(const HcaPort& port) {
  return absl::StrCat(port.device, " port ", port.port, " is ", port.state, " (", port.physical,
                      ")");
}

// As NCCL reads NCCL_IB_HCA: names of devices, some with ":PORT".
bool HcaAllowed(const std::string& value, const HcaPort& port) {
  const std::size_t start = value.find_first_not_of("^=");
  if (start == std::string::npos) return true;
  std::vector<std::string> names;
  for (const absl::string_view word : absl::StrSplit(value.substr(start), ',')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(word, absl::MaxSplits(':', 1));
    if (parts.second.empty() || parts.second == port.port) names.push_back(parts.first);
  }
  if (names.empty()) return value[0] == '^';
  return NcclAllows(absl::StrCat(value.substr(0, start), absl::StrJoin(names, ",")), port.device);
}

absl::Status CheckNetwork(const HealthFacts& facts) {
  if (!facts.nccl_socket_ifname.empty() &&
      std::none_of(facts.interfaces.begin(), facts.interfaces.end(), [&](const auto& one) {
        return one.up && NcclAllows(facts.nccl_socket_ifname, one.name);
      })) {
    return Unfit("NCCL_SOCKET_IFNAME=", facts.nccl_socket_ifname,
                 " is no interface that is up here; see ip link");
  }
  if (facts.without_ib) return absl::OkStatus();
  const bool named = !facts.nccl_ib_hca.empty() && facts.nccl_ib_hca[0] != '^';
  for (const HcaPort& port : facts.ports) {
    if (port.state == "ACTIVE" || !HcaAllowed(facts.nccl_ib_hca, port)) continue;
    // A port that nobody has named and that has no cable is one that is not used.
    if (!named && port.physical != "LinkUp") continue;
    return Unfit(PortText(port), " and NCCL would use it",
                 named ? absl::StrCat(" (NCCL_IB_HCA=", facts.nccl_ib_hca, ")") : "",
                 "; see ibstat, the cable and the subnet manager");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status JudgeHealth(absl::string_view check, const HealthFacts& facts) {
  constexpr absl::Status (*kChecks[])(const HealthFacts&) = {CheckGpus, CheckDisk, CheckClock,
                                                             CheckNetwork};
  static_assert(std::size(kChecks) == std::size(kHealthCheckNames));
  for (std::size_t index = 0; index < std::size(kChecks); ++index) {
    if (check == kHealthCheckNames[index]) return kChecks[index](facts);
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no health check ", check));
}

bool GpuMemoryIsInUse(const HealthFacts& facts) { return !FullGpus(facts).empty(); }

std::vector<Xid> XidsIn(absl::string_view records, std::int64_t now) {
  std::vector<Xid> xids;
  for (const absl::string_view line : absl::StrSplit(records, '\n')) {
    // "PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT"; what programs write there has another facility.
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(';', 1));
    const std::vector<absl::string_view> head = absl::StrSplit(parts.first, ',');
    int priority = 0;
    std::int64_t time = 0;
    if (head.size() < 3 || !absl::SimpleAtoi(head[0], &priority) || priority >= 8 ||
        !absl::SimpleAtoi(head[2], &time))
      continue;
    if (absl::StrContains(parts.second, "NVRM: loading NVIDIA")) xids.clear();
    constexpr absl::string_view kStart = "NVRM: Xid (PCI:";
    const std::size_t at = parts.second.find(kStart);
    if (at == absl::string_view::npos) continue;
    const std::pair<absl::string_view, absl::string_view> where =
        absl::StrSplit(parts.second.substr(at + kStart.size()), absl::MaxSplits("): ", 1));
    Xid xid{.pci = absl::AsciiStrToLower(where.first), .seconds_ago = (now - time) / 1'000'000};
    if (absl::SimpleAtoi(where.second.substr(0, where.second.find(',')), &xid.number))
      xids.push_back(std::move(xid));
  }
  return xids;
}

}  // namespace ddprun
