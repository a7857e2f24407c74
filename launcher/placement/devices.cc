// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/devices.h"

#include <dirent.h>
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

namespace ddprun {
namespace {

std::vector<std::string> SortedEntries(const std::string& path) {
  std::vector<std::string> names;
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

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
    absl::string_view digits = name;
    int minor = 0;
    if (absl::ConsumePrefix(&digits, "nvidia") && !digits.empty() &&
        std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
        absl::SimpleAtoi(digits, &minor) &&
        access(absl::StrCat(root, "/dev/", name).c_str(), R_OK | W_OK) == 0) {
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
    // -1 where the firmware does not say, as with a single node: there is a first one, as torchrun
    // has it too.
    const std::string node =
        ReadSmallFile(absl::StrCat(root, "/sys/bus/pci/devices/", place, "/numa_node"));
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(node), &gpu.node)) gpu.node = 0;
    gpu.node = std::max(gpu.node, 0);
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
          "--nproc-per-node gpu, but no NVIDIA GPU is visible here (/dev/nvidia0, "
          "CUDA_VISIBLE_DEVICES); give a number, "
          "or cpu");
    case ProcPerNode::kCpu:
      return cpus;
  }
  return absl::InternalError("unknown --nproc-per-node");
}

absl::StatusOr<Machine> ReadMachine(const Options& options, const GetVariable& get_variable) {
  const AffinityOptions& affinity = options.affinity;
  const bool binds = affinity.numa_binding != NumaBinding::kNone;
  const CpuSet cpus = AllowedCpus();
  Machine machine;
  machine.cpus = static_cast<int>(cpus.size());
  machine.cores = machine.cpus;
  machine.cuda_visible_devices = get_variable("CUDA_VISIBLE_DEVICES");
  if (binds || !affinity.gpus.empty()) {
    machine.gpus = ReadGpus("");
  } else {
    machine.gpus.resize(static_cast<std::size_t>(CountGpuDevices("")));
  }
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
