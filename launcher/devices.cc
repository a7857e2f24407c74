// SPDX-License-Identifier: Apache-2.0
#include "launcher/devices.h"

#include <dirent.h>
#include <fcntl.h>
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
#include "launcher/hwloc_topology.h"
#include "launcher/int_ranges.h"
#include "launcher/limits.h"
#include "rendezvous/owned_fd.h"

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

// Of a small file of the kernel's; "" where it cannot be read.
std::string ReadText(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[4096];
  const ssize_t size = fd.valid() ? read(fd.get(), buffer, sizeof(buffer)) : 0;
  return size > 0 ? std::string(buffer, static_cast<std::size_t>(size)) : "";
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

constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);

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

std::vector<Gpu> ReadGpus(const std::string& root, int devices) {
  std::vector<Gpu> gpus;
  const std::string folder = absl::StrCat(root, "/proc/driver/nvidia/gpus/");
  // In the order of their places on the bus, which is the one of nvidia-smi.
  for (const std::string& place : SortedEntries(folder)) {
    const std::map<std::string, std::string> facts =
        ParseFacts(ReadText(absl::StrCat(folder, place, "/information")));
    Gpu gpu{.uuid = "", .node = 0};
    // A GPU that nobody has woken up shows question marks.
    if (const auto found = facts.find("GPU UUID");
        found != facts.end() && !absl::StrContains(found->second, '?')) {
      gpu.uuid = found->second;
    }
    // -1 where the firmware does not say, as with a single node: there is a first one, as torchrun
    // has it too.
    const std::string node =
        ReadText(absl::StrCat(root, "/sys/bus/pci/devices/", place, "/numa_node"));
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(node), &gpu.node)) gpu.node = 0;
    gpu.node = std::max(gpu.node, 0);
    gpus.push_back(std::move(gpu));
  }
  // A container may see all of the machine's in /proc and some in /dev: which ones is not known.
  if (gpus.size() != static_cast<std::size_t>(devices)) {
    gpus.assign(static_cast<std::size_t>(devices), Gpu{.uuid = "", .node = -1});
  }
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
  if (absl::StartsWith(ReadText(absl::StrCat(folder, "smt/active")), "0")) {
    return static_cast<int>(cpus.size());
  }
  std::set<int> seen;
  int cores = 0;
  for (const int cpu : cpus) {
    if (!seen.insert(cpu).second) continue;
    ++cores;
    const auto siblings =
        ParseRanges(ReadText(absl::StrCat(folder, "cpu", cpu, "/topology/thread_siblings_list")));
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
  const int devices = CountGpuDevices();
  if (binds || !affinity.gpus.empty()) {
    machine.gpus = ReadGpus("", devices);
  } else {
    machine.gpus.resize(static_cast<std::size_t>(devices));
  }
  if (binds) {
    absl::StatusOr<Topology> topology = ReadTopology(cpus);
    if (!topology.ok()) {
      return absl::Status(topology.status().code(),
                          absl::StrCat("--numa-binding needs ", topology.status().message()));
    }
    machine.topology = *std::move(topology);
  } else if (options.proc_per_node != ProcPerNode::kNumber || options.proc_per_node_number > 1) {
    machine.cores = CountCores("", cpus);
  }
  return machine;
}

}  // namespace ddprun
