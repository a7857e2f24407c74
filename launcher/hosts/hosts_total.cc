// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_total.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using Hosts = std::vector<HostEntry>;

std::string Count(int number, const char* one, const char* more) {
  return absl::StrCat(number, " ", number == 1 ? one : more);
}

// `-n N --nproc-per-node P`: as many hosts as that needs.
absl::StatusOr<Hosts> TakeHosts(const Options& options, Hosts hosts) {
  const int workers = *options.total_workers;
  const int share = options.proc_per_node_number;
  const int given = static_cast<int>(hosts.size());
  if (workers % share != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("-n ", workers, " is no multiple of --nproc-per-node ", share,
                     ", which is the number on each host; change one of them, or leave "
                     "--nproc-per-node out"));
  }
  const int needed = workers / share;
  if (options.hosts.has_nnodes && options.nodes != needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("-n ", workers, " contradicts --nproc-per-node ", share, " on ",
                     Count(options.nodes, "node", "nodes"), ", which makes ", share * options.nodes,
                     "; leave one of the numbers out"));
  }
  if (needed > given) {
    return absl::InvalidArgumentError(
        absl::StrCat("-n ", workers, " with ", Count(share, "worker", "workers"),
                     " on each host needs ", Count(needed, "host", "hosts"), ", and ", given,
                     given == 1 ? " is" : " are", " given; name more, or start fewer workers"));
  }
  if (!options.hosts.has_nnodes) hosts.resize(static_cast<std::size_t>(needed));
  return hosts;
}

absl::StatusOr<Hosts> ShareEvenly(const Options& options, Hosts hosts, int count) {
  const int workers = *options.total_workers;
  if (workers % count != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "-n ", workers, " cannot be divided evenly among ", Count(count, "host", "hosts"),
        "; say how many each has (", hosts.front().name, ":N), or give a multiple of ", count));
  }
  const int share = workers / count;
  for (HostEntry& host : hosts) {
    if (share > host.slots.value_or(share)) {
      return absl::InvalidArgumentError(
          absl::StrCat("-n ", workers, " on ", Count(count, "host", "hosts"), " are ", share,
                       " on each, and ", host.name, " has ", Count(*host.slots, "slot", "slots"),
                       "; give it more, or start fewer workers"));
    }
    host.slots = share;
  }
  return hosts;
}

// In the order of the hosts; those for which nothing is left are not used.
absl::StatusOr<Hosts> FillSlots(int workers, Hosts hosts) {
  int rest = workers;
  Hosts filled;
  for (HostEntry& host : hosts) {
    if (rest == 0) break;
    host.slots = std::min(rest, host.slots.value_or(1));
    rest -= *host.slots;
    filled.push_back(std::move(host));
  }
  if (rest > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("-n ", workers, " is more than the ", Count(workers - rest, "slot", "slots"),
                     " of ", Count(static_cast<int>(filled.size()), "host", "hosts"),
                     "; give the hosts more (HOST:N), or start fewer workers"));
  }
  return filled;
}

}  // namespace

absl::StatusOr<Hosts> ShareTotal(const Options& options, Hosts hosts) {
  if (!options.total_workers.has_value() || hosts.empty()) return hosts;
  const int workers = *options.total_workers;
  const int given = static_cast<int>(hosts.size());
  if (options.hosts.has_nproc) return TakeHosts(options, std::move(hosts));
  if (options.hosts.has_nnodes) {
    // Too few hosts: the plan says so.
    return options.nodes > given ? hosts : ShareEvenly(options, std::move(hosts), options.nodes);
  }
  const bool any_slots = std::any_of(hosts.begin(), hosts.end(),
                                     [](const HostEntry& host) { return host.slots.has_value(); });
  if (any_slots || workers < given) return FillSlots(workers, std::move(hosts));
  return ShareEvenly(options, std::move(hosts), given);
}

}  // namespace ddprun
