// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/host_names.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// The address alone does not tell: that of the service's own node may be a name or the loopback.
bool IsSameHost(const KnownHost& known, const Join& join) {
  return known.address == join.address ||
         (!known.addresses.empty() && known.addresses == join.addresses);
}

}  // namespace

std::string HostNameInRun(const RunState& state, const Join& join) {
  const auto member = state.members.find(join.node_id);
  if (member != state.members.end()) return member->second.join.host;
  const auto known = state.hosts.find(join.host);
  if (known == state.hosts.end() || IsSameHost(known->second, join)) return join.host;
  return absl::StrCat(join.host, " at ", join.address);
}

void RememberHost(RunState& state, const Join& join) {
  state.hosts.insert_or_assign(join.host, KnownHost{join.address, join.addresses});
  // As many hosts without a node are remembered as there may be failed ones, and seldom counted.
  if (state.hosts.size() <= state.members.size() + 2 * kFailedHostsMax) return;
  std::set<std::string> needed;
  for (const auto& entry : state.members) needed.insert(entry.second.join.host);
  std::erase_if(state.hosts, [&](const auto& host) {
    return host.first != join.host && !needed.contains(host.first) &&
           !state.restarts.hosts.contains(host.first);
  });
}

}  // namespace ddprun
