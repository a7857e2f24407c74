// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/placement/devices.h"
#include "launcher/placement/numa_binding.h"

namespace ddprun {
namespace {

// GPUs that one worker has for itself; 0: none, all workers see all.
int GpusOfAWorker(const AffinityOptions& affinity) {
  if (affinity.gpus_per_worker > 0) return affinity.gpus_per_worker;
  return affinity.virtual_local_rank ? 1 : 0;
}

// As torchrun does it, on machines without GPUs too: the entries of CUDA_VISIBLE_DEVICES one by
// one, or the local ranks where it is not set.
absl::StatusOr<std::vector<std::string>> VirtualGpus(const Machine& machine, int workers) {
  std::vector<std::string> entries;
  if (!machine.visible_devices.has_value()) {
    for (int worker = 0; worker < workers; ++worker) entries.push_back(absl::StrCat(worker));
    return entries;
  }
  for (const absl::string_view entry : absl::StrSplit(*machine.visible_devices, ',')) {
    entries.emplace_back(absl::StripAsciiWhitespace(entry));
  }
  if (static_cast<std::size_t>(workers) <= entries.size()) return entries;
  return absl::FailedPreconditionError(
      absl::StrCat("--virtual-local-rank gives each of ", workers, " workers a GPU, and ",
                   VisibleVariable(machine.device_kind), "=", *machine.visible_devices, " has ",
                   entries.size(), "; start fewer workers, or name more GPUs"));
}

// CUDA_VISIBLE_DEVICES of each worker, or that of the other kind.
absl::Status ShareGpus(const AffinityOptions& affinity, const Machine& machine,
                       std::vector<std::string> chosen, std::vector<Place>& places) {
  const auto share = static_cast<std::size_t>(GpusOfAWorker(affinity));
  if (share == 0) {
    if (affinity.gpus.empty()) return absl::OkStatus();
    for (Place& place : places) place.visible_devices = absl::StrJoin(chosen, ",");
    return absl::OkStatus();
  }
  if (affinity.gpus.empty() && affinity.gpus_per_worker == 0) {
    auto entries = VirtualGpus(machine, static_cast<int>(places.size()));
    if (!entries.ok()) return entries.status();
    chosen = *std::move(entries);
  } else if (chosen.size() < share * places.size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "each of ", places.size(), " workers is to have ", share, share == 1 ? " GPU" : " GPUs",
        " of its own, and there are ", chosen.size(), "; start fewer workers, or name more GPUs"));
  }
  for (std::size_t worker = 0; worker < places.size(); ++worker) {
    const auto first = chosen.begin() + static_cast<std::ptrdiff_t>(worker * share);
    places[worker].visible_devices =
        absl::StrJoin(first, first + static_cast<std::ptrdiff_t>(share), ",");
  }
  return absl::OkStatus();
}

// Each program sees GPUs of its own, as many as it has workers, so that LOCAL_RANK names one of
// them although it is counted in the role. With fewer GPUs than workers the programs share all.
void ShareGpusByRole(const std::vector<std::string>& chosen, std::vector<Place>& places) {
  if (chosen.size() < places.size()) return;
  for (std::size_t first = 0, end = 0; first < places.size(); first = end) {
    while (end < places.size() && places[end].program == places[first].program) ++end;
    const std::string gpus = absl::StrJoin(chosen.begin() + static_cast<std::ptrdiff_t>(first),
                                           chosen.begin() + static_cast<std::ptrdiff_t>(end), ",");
    for (std::size_t i = first; i < end; ++i) places[i].visible_devices = gpus;
  }
}

// The NUMA node of each worker's (first) GPU, and of those that no worker has. Empty without GPUs.
absl::StatusOr<std::vector<int>> Seats(const AffinityOptions& affinity, const Machine& machine,
                                       const std::vector<std::string>& chosen,
                                       std::size_t workers) {
  std::vector<int> seats;
  const auto share = static_cast<std::size_t>(std::max(1, GpusOfAWorker(affinity)));
  for (std::size_t first = 0; first + share <= chosen.size(); first += share) {
    absl::StatusOr<int> node = NodeOfGpu(chosen[first], machine.gpus);
    if (!node.ok()) return node.status();
    seats.push_back(*node);
  }
  // More workers than GPUs take turns, as programs that say `local_rank % device_count()` have it.
  const std::size_t gpus = seats.size();
  for (std::size_t worker = gpus; gpus > 0 && worker < workers; ++worker) {
    seats.push_back(seats[worker % gpus]);
  }
  return seats;
}

absl::Status Bind(const Options& options, const Machine& machine,
                  const std::vector<std::string>& chosen, std::vector<Place>& places) {
  auto seats = Seats(options.affinity, machine, chosen, places.size());
  if (!seats.ok()) return seats.status();
  auto bound = BindWorkers(options.affinity.numa_binding, machine.topology,
                           static_cast<int>(places.size()), *std::move(seats));
  if (!bound.ok()) return bound.status();
  for (std::size_t worker = 0; worker < places.size(); ++worker) {
    places[worker].cpus = std::move((*bound)[worker].cpus);
    places[worker].memory_nodes = std::move((*bound)[worker].nodes);
    places[worker].threads = (*bound)[worker].cores;
  }
  return absl::OkStatus();
}

// More threads than a container has time for would wait for each other. One worker alone asks the
// system itself, which knows what it is bound to, but not its quota.
void LimitThreads(const Machine& machine, std::vector<Place>& places) {
  for (Place& place : places) {
    bool limited = false;
    if (machine.cpu_quota.has_value()) {
      const double share = *machine.cpu_quota / static_cast<double>(places.size());
      limited = share < place.threads;
      if (limited) place.threads = static_cast<int>(share);
    }
    place.threads = places.size() == 1 && !limited ? 0 : std::max(1, place.threads);
  }
}

}  // namespace

absl::StatusOr<std::vector<Place>> PlaceWorkers(const Options& options, const Machine& machine) {
  const AffinityOptions& affinity = options.affinity;
  const absl::StatusOr<std::vector<std::string>> chosen =
      ChooseGpus(VisibleGpus(static_cast<int>(machine.gpus.size()), machine.visible_devices),
                 affinity.gpus, machine.gpus, machine.device_kind);
  if (!chosen.ok()) return chosen.status();
  const int share = std::max(1, GpusOfAWorker(affinity));
  // For each program that does not set it itself.
  const absl::StatusOr<int> workers =
      LocalWorldSize(options, static_cast<int>(chosen->size()) / share, machine.cpus);
  if (!workers.ok()) return workers.status();

  std::vector<Place> places;
  const std::vector<const ProgramSection*> programs = SectionsOf(options);
  for (std::size_t program = 0; program < programs.size(); ++program) {
    const Place place{.device_kind = machine.device_kind,
                      .local_rank_is_zero = affinity.virtual_local_rank,
                      .program = static_cast<int>(program)};
    places.insert(places.end(),
                  static_cast<std::size_t>(programs[program]->workers.value_or(*workers)), place);
  }
  for (Place& place : places) place.threads = machine.cores / static_cast<int>(places.size());
  absl::Status status = ShareGpus(affinity, machine, *chosen, places);
  if (programs.size() > 1 && options.ranks_by_role && GpusOfAWorker(affinity) == 0)
    ShareGpusByRole(*chosen, places);
  if (status.ok() && affinity.numa_binding != NumaBinding::kNone) {
    status = Bind(options, machine, *chosen, places);
  }
  if (!status.ok()) return status;
  LimitThreads(machine, places);
  return places;
}

}  // namespace ddprun
