// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/membership_step.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace ddprun {
namespace {

using absl::ascii_isdigit;

// The first run of digits or of other characters.
absl::string_view FirstRun(absl::string_view text) {
  std::size_t end = 1;
  while (end < text.size() && ascii_isdigit(text[end]) == ascii_isdigit(text[0])) ++end;
  return text.substr(0, end);
}

// Below 0: "n2" before "n10", since runs of digits compare as numbers. Names that share their first
// runs stay together, so "s1.n7" is beside "s1.n8".
int CompareNatural(absl::string_view a, absl::string_view b) {
  while (!a.empty() && !b.empty()) {
    const absl::string_view run_a = FirstRun(a);
    const absl::string_view run_b = FirstRun(b);
    if (ascii_isdigit(run_a[0]) && ascii_isdigit(run_b[0])) {
      const auto without_zeros = [](absl::string_view run) {
        return run.substr(std::min(run.find_first_not_of('0'), run.size()));
      };
      const absl::string_view number_a = without_zeros(run_a);
      const absl::string_view number_b = without_zeros(run_b);
      if (number_a.size() != number_b.size()) return number_a.size() < number_b.size() ? -1 : 1;
      if (const int order = number_a.compare(number_b); order != 0) return order;
    }
    if (const int order = run_a.compare(run_b); order != 0) return order;
    a.remove_prefix(run_a.size());
    b.remove_prefix(run_b.size());
  }
  return a.compare(b);
}

bool GetsRankBefore(RankOrder order, const Member& a, const Member& b) {
  if (order == RankOrder::kTopology) {
    if (const int by = CompareNatural(a.join.topology, b.join.topology); by != 0) return by < 0;
  }
  if (order != RankOrder::kJoin) {
    if (const int by = CompareNatural(a.join.host, b.join.host); by != 0) return by < 0;
  }
  return a.order < b.order;
}

}  // namespace

std::vector<Member*> ChooseForRound(RunState& state) {
  std::vector<Member*> members;
  members.reserve(state.members.size());
  for (auto& entry : state.members) members.push_back(&entry.second);
  std::sort(members.begin(), members.end(), [](const Member* a, const Member* b) {
    return std::pair(!a->seated, a->order) < std::pair(!b->seated, b->order);
  });
  const auto places = static_cast<std::size_t>(state.rules->nodes_max);
  if (members.size() > places) members.resize(places);
  return members;
}

void AssignRanks(RunState& state, std::vector<Member*>& chosen) {
  const auto size = static_cast<int>(chosen.size());
  std::vector<Member*> by_rank(chosen.size(), nullptr);
  const auto take = [&](Member* member, std::optional<int> rank) {
    if (!rank || *rank >= size || by_rank[static_cast<std::size_t>(*rank)] != nullptr) return false;
    by_rank[static_cast<std::size_t>(*rank)] = member;
    return true;
  };
  std::vector<Member*> held;
  for (Member* member : chosen) {
    if (!take(member, member->join.node_rank)) held.push_back(member);
  }
  std::vector<Member*> free;
  for (Member* member : held) {
    if (!take(member, member->node_rank)) free.push_back(member);
  }
  const RankOrder order = state.rules->rank_order;
  std::sort(free.begin(), free.end(),
            [&](const Member* a, const Member* b) { return GetsRankBefore(order, *a, *b); });
  auto next = by_rank.begin();
  for (Member* member : free) {
    next = std::find(next, by_rank.end(), nullptr);
    *next = member;
  }
  state.places.clear();
  for (int rank = 0; rank < size; ++rank) {
    Member* member = by_rank[static_cast<std::size_t>(rank)];
    member->node_rank = rank;
    state.places.emplace(rank, member->join.node_id);
  }
  // Ranks that spares asked for stay reserved, unless another node has them.
  for (auto& [id, member] : state.members) {
    if (member.node_rank && state.places.try_emplace(*member.node_rank, id).first->second != id) {
      member.node_rank.reset();
    }
  }
  chosen = std::move(by_rank);
}

namespace {

std::vector<RoleWorkers> RolesOf(const Join& join) {
  if (!join.roles.empty()) return join.roles;
  return {{join.role, join.local_world_size, join.worker_port}};
}

}  // namespace

void AssignRoleRanks(const std::vector<Member*>& chosen) {
  // As the next node that has the role finds it: rank_first is the number of ranks so far.
  std::map<std::string, RoleRanks> roles;
  for (Member* member : chosen) {
    member->roles.clear();
    for (const RoleWorkers& of_node : RolesOf(member->join)) {
      const auto [it, is_first] = roles.try_emplace(of_node.name);
      RoleRanks& role = it->second;
      if (is_first) {
        role.master_addr = member->join.address;
        role.master_port = of_node.worker_port;
      }
      member->roles.push_back(role);
      role.rank_first += of_node.workers;
      ++role.node_rank;
    }
  }
  for (Member* member : chosen) {
    const std::vector<RoleWorkers> of_node = RolesOf(member->join);
    for (std::size_t i = 0; i < of_node.size(); ++i) {
      const RoleRanks& role = roles.at(of_node[i].name);
      RoleRanks& ranks = member->roles[i];
      ranks.world_size = role.rank_first;
      ranks.node_count = role.node_rank;
      ranks.master_addr = role.master_addr;
      ranks.master_port = role.master_port;
    }
    member->role_rank_first = member->roles.front().rank_first;
    member->role_world_size = member->roles.front().world_size;
    if (member->join.roles.empty()) member->roles.clear();
  }
}

}  // namespace ddprun
