// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/devices.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/cgroup_folder.h"
#include "launcher/base/int_ranges.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "launcher/placement/accelerators.h"

namespace ddprun {
namespace {

// "Name:  value" lines.
std::map<std::string, std::string> ParseFacts(const std::string& text) {
  std::map<std::string, std::string> facts;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> fact =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    facts.emplace(absl::StripAsciiWhitespace(fact.first), absl::StripAsciiWhitespace(fact.second));
  }
  return facts;
}

// By the numbers of /dev/nvidia0 and so on. A job's cgroup may leave the files of all GPUs in
// place and refuse some of them (Slurm's ConstrainDevices), which access() shows without waking
// them up.
std::set<int> UsableGpuMinors(const std::string& root) {
  std::set<int> minors;
  for (const std::string& name : SortedEntries(root + "/dev")) {
    const int minor = NumberBehind("nvidia", name);
    if (minor >= 0 && access(absl::StrCat(root, "/dev/", name).c_str(), R_OK | W_OK) == 0) {
      minors.insert(minor);
    }
  }
  return minors;
}

constexpr char kGpuFolder[] = "/proc/driver/nvidia/gpus/";
constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);

}  // namespace

int CountGpuDevices(const std::string& root) {
  const std::size_t devices = UsableGpuMinors(root).size();
  return static_cast<int>(devices > 0 ? devices : SortedEntries(root + kGpuFolder).size());
}

std::vector<Gpu> ReadGpus(const std::string& root) {
  const std::set<int> minors = UsableGpuMinors(root);
  std::vector<Gpu> gpus;
  // In the order of their places on the bus, which is the one of nvidia-smi.
  for (const std::string& place : SortedEntries(root + kGpuFolder)) {
    const std::map<std::string, std::string> facts =
        ParseFacts(ReadSmallFile(absl::StrCat(root, kGpuFolder, place, "/information")));
    const auto fact = [&](const char* name) {
      const auto found = facts.find(name);
      return found == facts.end() ? std::string() : found->second;
    };
    int minor = -1;
    if (!minors.empty() &&
        !(absl::SimpleAtoi(fact("Device Minor"), &minor) && minors.count(minor) > 0)) {
      continue;
    }
    Gpu gpu{.uuid = fact("GPU UUID"), .node = 0};
    // A GPU that is not initialized shows question marks.
    if (absl::StrContains(gpu.uuid, '?')) gpu.uuid.clear();
    gpu.node = NodeOfPciDevice(root, place);
    gpus.push_back(std::move(gpu));
  }
  // A driver of another kind, or a container without its /proc: that there are GPUs is all that is
  // known.
  if (gpus.size() < minors.size()) gpus.assign(minors.size(), Gpu{.uuid = "", .node = -1});
  return gpus;
}

CpuSet AllowedCpus() {
  CpuSet cpus;
  // The kernel refuses a mask that is too short for all the CPUs it knows.
  for (std::size_t words = 16; words * kWordBits <= kCpusMax; words *= 2) {
    std::vector<unsigned long> mask(words);
    const long bytes = syscall(SYS_sched_getaffinity, 0, words * sizeof(mask[0]), mask.data());
    if (bytes < 0) continue;
    for (std::size_t cpu = 0; cpu < words * kWordBits; ++cpu) {
      if ((mask[cpu / kWordBits] >> (cpu % kWordBits) & 1) != 0) {
        cpus.push_back(static_cast<int>(cpu));
      }
    }
    return cpus;
  }
  const int count = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  for (int cpu = 0; cpu < count; ++cpu) cpus.push_back(cpu);
  return cpus;
}

int CountCores(const std::string& root, const CpuSet& cpus) {
  const std::string folder = absl::StrCat(root, "/sys/devices/system/cpu/");
  if (absl::StartsWith(ReadSmallFile(absl::StrCat(folder, "smt/active")), "0")) {
    return static_cast<int>(cpus.size());
  }
  std::set<int> seen;
  int cores = 0;
  for (const int cpu : cpus) {
    if (!seen.insert(cpu).second) continue;
    ++cores;
    const auto siblings = ParseRanges(
        ReadSmallFile(absl::StrCat(folder, "cpu", cpu, "/topology/thread_siblings_list")));
    if (siblings.has_value()) seen.insert(siblings->begin(), siblings->end());
  }
  return cores;
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
          "--nproc-per-node gpu, but no NVIDIA or AMD GPU is visible here (/dev/nvidia0, "
          "CUDA_VISIBLE_DEVICES; /dev/kfd, HIP_VISIBLE_DEVICES); give a number, or cpu");
    case ProcPerNode::kXpu:
      if (gpus > 0) return gpus;
      return absl::NotFoundError(
          "--nproc-per-node xpu, but no Intel GPU is visible here (/dev/dri/renderD128 of the "
          "drivers xe and i915, ZE_AFFINITY_MASK); give a number, or cpu");
    case ProcPerNode::kNpu:
      if (gpus > 0) return gpus;
      return absl::NotFoundError(
          "--nproc-per-node npu, but no Ascend NPU is visible here (/dev/davinci0, "
          "ASCEND_RT_VISIBLE_DEVICES); give a number, or cpu");
    case ProcPerNode::kCpu:
      return cpus;
  }
  return absl::InternalError("unknown --nproc-per-node");
}

namespace {

// ROCR_VISIBLE_DEVICES comes first: HIP numbers what it leaves.
std::vector<Gpu> VisibleRocmGpus(const std::string& root, const GetVariable& get_variable) {
  const std::vector<Gpu> gpus = ReadRocmGpus(root);
  const std::optional<std::string> list = get_variable("ROCR_VISIBLE_DEVICES");
  return list.has_value() ? GpusOf(VisibleGpus(static_cast<int>(gpus.size()), list), gpus) : gpus;
}

std::vector<Gpu> GpusOfKind(DeviceKind kind, const std::string& root, const Options& options,
                            const GetVariable& get_variable) {
  const AffinityOptions& affinity = options.affinity;
  switch (kind) {
    case DeviceKind::kNvidia:
      if (affinity.numa_binding != NumaBinding::kNone || !affinity.gpus.empty())
        return ReadGpus(root);
      return std::vector<Gpu>(static_cast<std::size_t>(CountGpuDevices(root)));
    case DeviceKind::kRocm:
      return VisibleRocmGpus(root, get_variable);
    case DeviceKind::kXpu:
      return ReadXpus(root, {.integrated = options.proc_per_node == ProcPerNode::kXpu,
                             .tiles = get_variable("ZE_FLAT_DEVICE_HIERARCHY") != "COMPOSITE"});
    case DeviceKind::kNpu:
      return ReadNpus(root);
  }
  return {};
}

std::vector<DeviceKind> KindsFor(ProcPerNode proc_per_node) {
  switch (proc_per_node) {
    case ProcPerNode::kGpu:
      return {DeviceKind::kNvidia, DeviceKind::kRocm};
    case ProcPerNode::kXpu:
      return {DeviceKind::kXpu};
    case ProcPerNode::kNpu:
      return {DeviceKind::kNpu};
    case ProcPerNode::kNumber:
    case ProcPerNode::kAuto:
    case ProcPerNode::kCpu:
      break;
  }
  return {DeviceKind::kNvidia, DeviceKind::kRocm, DeviceKind::kXpu, DeviceKind::kNpu};
}

}  // namespace

void FindDevices(const std::string& root, const Options& options, const GetVariable& get_variable,
                 Machine& machine) {
  const std::vector<DeviceKind> kinds = KindsFor(options.proc_per_node);
  machine.device_kind = kinds.front();
  for (const DeviceKind kind : kinds) {
    machine.gpus = GpusOfKind(kind, root, options, get_variable);
    if (machine.gpus.empty()) continue;
    machine.device_kind = kind;
    break;
  }
  machine.visible_devices = get_variable(VisibleVariable(machine.device_kind));
  // HIP reads CUDA's where its own is not set.
  if (machine.device_kind == DeviceKind::kRocm && !machine.visible_devices.has_value())
    machine.visible_devices = get_variable("CUDA_VISIBLE_DEVICES");
}

absl::StatusOr<Machine> ReadMachine(const Options& options, const GetVariable& get_variable) {
  const AffinityOptions& affinity = options.affinity;
  const bool binds = affinity.numa_binding != NumaBinding::kNone;
  const CpuSet cpus = AllowedCpus();
  Machine machine;
  machine.cpus = static_cast<int>(cpus.size());
  machine.cores = machine.cpus;
  FindDevices("", options, get_variable, machine);
  if (binds) {
    absl::StatusOr<Topology> topology = ReadTopology(cpus);
    if (!topology.ok()) {
      return absl::Status(topology.status().code(),
                          absl::StrCat("--numa-binding needs ", topology.status().message()));
    }
    machine.topology = *std::move(topology);
  }
  if (options.proc_per_node != ProcPerNode::kNumber || options.proc_per_node_number > 1 ||
      options.workers.has_value() || !options.more_programs.empty()) {
    machine.cores = CountCores("", cpus);
    machine.cpu_quota = ReadCpuQuota("");
  }
  return machine;
}

namespace {

std::optional<double> Ratio(absl::string_view quota, absl::string_view period) {
  double time = 0;
  double of = 0;
  // "max", and -1 in version 1: no limit.
  if (!absl::SimpleAtod(quota, &time) || !absl::SimpleAtod(period, &of) || time <= 0 || of <= 0) {
    return std::nullopt;
  }
  return time / of;
}

// "400000 100000"
std::optional<double> QuotaOfVersion2(const std::string& folder) {
  const std::string text = ReadSmallFile(folder + "/cpu.max");
  const std::pair<absl::string_view, absl::string_view> words =
      absl::StrSplit(absl::StripAsciiWhitespace(text), absl::MaxSplits(' ', 1));
  return Ratio(words.first, words.second);
}

std::optional<double> QuotaOfVersion1(const std::string& folder) {
  const std::string quota = ReadSmallFile(folder + "/cpu.cfs_quota_us");
  const std::string period = ReadSmallFile(folder + "/cpu.cfs_period_us");
  return Ratio(absl::StripAsciiWhitespace(quota), absl::StripAsciiWhitespace(period));
}

}  // namespace

std::optional<double> ReadCpuQuota(const std::string& root) {
  const std::optional<CgroupFolder> cgroup = ReadCgroup(root, "self", "cpu");
  if (!cgroup.has_value()) return std::nullopt;
  std::optional<double> least;
  for (const std::string& folder : cgroup->AndAbove()) {
    const std::optional<double> quota =
        cgroup->v2 ? QuotaOfVersion2(folder) : QuotaOfVersion1(folder);
    if (quota.has_value()) least = std::min(least.value_or(*quota), *quota);
  }
  return least;
}

}  // namespace ddprun
