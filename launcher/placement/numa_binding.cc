// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/numa_binding.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/int_ranges.h"
#include "launcher/options/options.h"

namespace ddprun {
namespace {

// CPUs by what they have in common, in the order of that.
using Groups = std::map<int, CpuSet>;

Groups GroupBy(const Topology& topology, int Cpu::*what) {
  Groups groups;
  for (const Cpu& cpu : topology) groups[cpu.*what].push_back(cpu.id);
  return groups;
}

Topology OnNode(const Topology& topology, int node) {
  Topology cpus;
  std::copy_if(topology.begin(), topology.end(), std::back_inserter(cpus),
               [&](const Cpu& cpu) { return cpu.node == node; });
  return cpus;
}

CpuSet Ids(const Topology& topology) {
  CpuSet ids;
  for (const Cpu& cpu : topology) ids.push_back(cpu.id);
  return ids;
}

// For the machine without GPUs: worker r goes where core r * cores / workers is, counted node by
// node. So equal nodes get equal numbers, and a node with few usable CPUs gets few workers.
std::vector<int> SpreadOverNodes(const Topology& topology, int workers) {
  std::vector<int> node_of_core;
  for (const auto& [node, ids] : GroupBy(topology, &Cpu::node)) {
    node_of_core.insert(node_of_core.end(), GroupBy(OnNode(topology, node), &Cpu::core).size(),
                        node);
  }
  std::vector<int> seats;
  for (std::size_t worker = 0; worker < static_cast<std::size_t>(workers); ++worker) {
    seats.push_back(node_of_core[worker * node_of_core.size() / static_cast<std::size_t>(workers)]);
  }
  return seats;
}

// A seat among those of its node.
struct Seat {
  int node = 0;
  std::size_t index = 0;  // among the node's
  std::size_t count = 1;  // the node's
};

Seat SeatAt(const std::vector<int>& seats, std::size_t place) {
  const auto here = seats.begin() + static_cast<std::ptrdiff_t>(place);
  return {.node = *here,
          .index = static_cast<std::size_t>(std::count(seats.begin(), here, *here)),
          .count = static_cast<std::size_t>(std::count(seats.begin(), seats.end(), *here))};
}

absl::Status CannotHave(NumaBinding mode, const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("--numa-binding ", NumaBindingName(mode), " ", why));
}

// All nodes of the socket that the node's first CPU is on.
CpuSet SocketCpus(const Topology& topology, int node) {
  std::map<int, int> package_of_node;
  for (const Cpu& cpu : topology) package_of_node.emplace(cpu.node, cpu.package);
  CpuSet cpus;
  for (const Cpu& cpu : topology) {
    if (package_of_node[cpu.node] == package_of_node[node]) cpus.push_back(cpu.id);
  }
  return cpus;
}

// The node's physical cores in equal parts, the first ones with a core more where that does not go
// out even.
absl::StatusOr<CpuSet> ExclusiveCpus(const Topology& on_node, const Seat& seat) {
  const Groups cores = GroupBy(on_node, &Cpu::core);
  const std::size_t share = cores.size() / seat.count;
  const std::size_t with_one_more = cores.size() % seat.count;
  if (share == 0) {
    return CannotHave(NumaBinding::kExclusive,
                      absl::StrCat("gives each worker cores of its own, and NUMA node ", seat.node,
                                   " has ", cores.size(), " that may be used here for ", seat.count,
                                   " workers or GPUs; use node, or start fewer workers"));
  }
  const std::size_t first = seat.index * share + std::min(seat.index, with_one_more);
  const std::size_t end = first + share + (seat.index < with_one_more ? 1 : 0);
  CpuSet cpus;
  for (auto core = std::next(cores.begin(), static_cast<std::ptrdiff_t>(first));
       core != std::next(cores.begin(), static_cast<std::ptrdiff_t>(end)); ++core) {
    cpus.insert(cpus.end(), core->second.begin(), core->second.end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

// The complexes with the most CPUs that may be used come first, and after the last one the first
// again.
absl::StatusOr<CpuSet> CoreComplexCpus(const Topology& on_node, const Seat& seat) {
  const Groups caches = GroupBy(on_node, &Cpu::cache);
  if (caches.begin()->first < 0) {
    return CannotHave(NumaBinding::kCoreComplex,
                      "needs to know which CPUs share a cache, and this machine does not say; use "
                      "node");
  }
  std::vector<CpuSet> complexes;
  for (const auto& [cache, cpus] : caches) complexes.push_back(cpus);
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const CpuSet& a, const CpuSet& b) { return a.size() > b.size(); });
  return complexes[seat.index % complexes.size()];
}

absl::StatusOr<CpuSet> CpusOf(NumaBinding mode, const Topology& topology, const Seat& seat) {
  const Topology on_node = OnNode(topology, seat.node);
  if (on_node.empty()) {
    return CannotHave(mode, absl::StrCat("would use NUMA node ", seat.node,
                                         ", where a GPU is, and none of its CPUs may be used here "
                                         "(only ",
                                         RangesText(Ids(topology)),
                                         "); leave the flag out, or ask for CPUs of that node"));
  }
  switch (mode) {
    case NumaBinding::kSocket:
      return SocketCpus(topology, seat.node);
    case NumaBinding::kExclusive:
      return ExclusiveCpus(on_node, seat);
    case NumaBinding::kCoreComplex:
      return CoreComplexCpus(on_node, seat);
    case NumaBinding::kNone:
    case NumaBinding::kNode:
      break;
  }
  return Ids(on_node);
}

// Nodes and cores of the worker's CPUs.
void Describe(const Topology& topology, BoundWorker& worker) {
  std::set<int> nodes;
  std::set<int> cores;
  for (const Cpu& cpu : topology) {
    if (!std::binary_search(worker.cpus.begin(), worker.cpus.end(), cpu.id)) continue;
    nodes.insert(cpu.node);
    cores.insert(cpu.core);
  }
  worker.nodes.assign(nodes.begin(), nodes.end());
  worker.cores = static_cast<int>(cores.size());
}

}  // namespace

absl::StatusOr<std::vector<BoundWorker>> BindWorkers(NumaBinding mode, const Topology& topology,
                                                     int workers, std::vector<int> seats) {
  if (seats.empty()) seats = SpreadOverNodes(topology, workers);
  std::vector<BoundWorker> bound(static_cast<std::size_t>(workers));
  std::map<CpuSet, int> sharers;
  for (std::size_t worker = 0; worker < bound.size(); ++worker) {
    absl::StatusOr<CpuSet> cpus = CpusOf(mode, topology, SeatAt(seats, worker));
    if (!cpus.ok()) return cpus.status();
    ++sharers[*cpus];
    bound[worker].cpus = *std::move(cpus);
    Describe(topology, bound[worker]);
  }
  for (BoundWorker& worker : bound) {
    worker.cores = std::max(1, worker.cores / sharers[worker.cpus]);
  }
  return bound;
}

}  // namespace ddprun
