// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/membership_invariants.h"

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/membership/restart_policy.h"
#include "rendezvous/values/first_cause.h"

namespace ddprun {
namespace {

absl::Status Broken(const std::string& what) { return absl::InternalError(what); }

absl::Status CheckMembers(const RunState& state) {
  std::size_t linked = 0;
  std::size_t ranked = 0;
  std::size_t asking = 0;
  int waiting = 0;
  int running = 0;
  int stopping = 0;
  int leaving = 0;
  int kept = 0;
  for (const auto& [id, member] : state.members) {
    if (id != member.join.node_id) return Broken("a member is kept under another's id");
    waiting += member.phase == MemberPhase::kWaiting;
    running += member.phase == MemberPhase::kRunning;
    stopping += member.phase == MemberPhase::kStopping;
    leaving += member.leaving.has_value();
    kept += member.phase != MemberPhase::kWaiting && member.can_be_kept;
    if (member.link) {
      ++linked;
      const auto link = state.links.find(*member.link);
      if (link == state.links.end() || link->second != id) return Broken("a link leads elsewhere");
    } else if (state.rules->lease.count() == 0) {
      return Broken("a member is away in a run without leases");
    }
    if (member.join.node_rank) {
      ++asking;
      const auto asked = state.asked.find(*member.join.node_rank);
      if (asked == state.asked.end() || asked->second != id) {
        return Broken("two members ask for one node rank, or it is not known that one does");
      }
    }
    if (!member.node_rank) continue;
    ++ranked;
    if (*member.node_rank < 0 || *member.node_rank >= state.rules->nodes_max) {
      return Broken("a node rank is out of range");
    }
    const auto place = state.places.find(*member.node_rank);
    if (place == state.places.end() || place->second != id) {
      return Broken("two members have one node rank, or its place is not known");
    }
  }
  if (linked != state.links.size()) return Broken("a link without a member");
  if (ranked != state.places.size()) return Broken("a place without a member");
  if (asking != state.asked.size()) return Broken("a rank is asked for without a member");
  if (waiting != state.waiting || running != state.running || stopping != state.stopping ||
      leaving != state.leaving || kept != state.kept)
    return Broken("miscounted members");
  return absl::OkStatus();
}

std::vector<RoleWorkers> RolesOf(const Join& join) {
  if (!join.roles.empty()) return join.roles;
  return {{join.role, join.local_world_size, 0}};
}

// Ranks of nodes and of workers are those of a sealed round: unique, and without a gap.
absl::Status CheckSeats(const RunState& state) {
  std::map<int, const Member*> seats;
  for (const auto& entry : state.members) {
    const Member& member = entry.second;
    if (member.phase == MemberPhase::kWaiting) continue;
    if (!member.node_rank) return Broken("a member of a round has no rank");
    seats[*member.node_rank] = &member;
  }
  const auto count = static_cast<int>(seats.size());
  if (count != state.start->node_count || count < state.rules->nodes_min ||
      count > state.rules->nodes_max) {
    return Broken("a sealed round has too few nodes or too many");
  }
  int node_rank = 0;
  int rank = 0;
  std::map<std::string, int> role_ranks;
  for (const auto& [seat, member] : seats) {
    if (seat != node_rank++ || member->rank_first != rank) return Broken("ranks have a gap");
    rank += member->join.local_world_size;
    const std::vector<RoleWorkers> roles = RolesOf(member->join);
    if (member->role_rank_first != role_ranks[roles.front().name])
      return Broken("ranks of a role have a gap");
    if (member->roles.size() != member->join.roles.size()) return Broken("a role has no ranks");
    for (std::size_t i = 0; i < roles.size(); ++i) {
      int& role_rank = role_ranks[roles[i].name];
      if (!member->roles.empty() && member->roles[i].rank_first != role_rank)
        return Broken("ranks of a role of several have a gap");
      role_rank += roles[i].workers;
    }
    if (count == state.rules->nodes_max && member->join.node_rank &&
        *member->join.node_rank != seat) {
      return Broken("a member was given another rank than it asked for");
    }
  }
  for (const auto& [seat, member] : seats) {
    if (member->role_world_size != role_ranks[RolesOf(member->join).front().name])
      return Broken("a wrong world size of a role");
  }
  return rank == state.start->world_size ? absl::OkStatus() : Broken("a wrong world size");
}

// For the order of names as these tests mostly have them, a letter and a number; others are left to
// the unit tests.
bool IsSimple(const std::string& name) {
  return name.size() > 1 && (name.size() == 2 || name[1] != '0') &&
         name.find_first_not_of("0123456789", 1) == std::string::npos;
}
bool MayBeBefore(const std::string& a, const std::string& b) {
  return !IsSimple(a) || !IsSimple(b) || a[0] != b[0] ||
         std::pair(a.size(), a) < std::pair(b.size(), b);
}

// Nodes that get their first rank with the same Start get it in the order that the run has.
absl::Status CheckRankOrder(const RunState& before, const RunState& after) {
  if (after.phase != RunPhase::kSealed || before.phase == RunPhase::kSealed)
    return absl::OkStatus();
  const RankOrder order = after.rules->rank_order;
  const Member* last = nullptr;
  for (const auto& entry : after.places) {
    const Member& member = after.members.at(entry.second);
    const auto was = before.members.find(entry.second);
    const bool is_new = was == before.members.end() || !was->second.node_rank;
    if (!is_new || member.join.node_rank) continue;
    if (last != nullptr) {
      const Join& a = last->join;
      const Join& b = member.join;
      const bool by_place = order == RankOrder::kTopology && a.topology != b.topology;
      const bool by_host = order != RankOrder::kJoin && !by_place && a.host != b.host;
      const bool good = by_place  ? MayBeBefore(a.topology, b.topology)
                        : by_host ? MayBeBefore(a.host, b.host)
                                  : last->order < member.order;
      if (!good) {
        return Broken(absl::StrCat("nodes ", a.host, " and ", b.host,
                                   " have ranks in an order that is not --rank-order ",
                                   RankOrderName(order)));
      }
    }
    last = &member;
  }
  return absl::OkStatus();
}

absl::Status CheckPhase(const RunState& state) {
  for (const auto& entry : state.members) {
    const MemberPhase phase = entry.second.phase;
    const bool working = phase == MemberPhase::kRunning || phase == MemberPhase::kSucceeded;
    const bool stopping = phase == MemberPhase::kStopping || phase == MemberPhase::kStopped;
    if (state.phase == RunPhase::kForming && phase != MemberPhase::kWaiting) {
      return Broken("a member of a forming round does not wait");
    }
    if (state.phase == RunPhase::kSealed && stopping)
      return Broken("a member of a sealed round stops");
    if (state.phase == RunPhase::kBroken && working)
      return Broken("a member of a broken round still runs");
  }
  if ((state.phase == RunPhase::kForming || state.phase == RunPhase::kSealed) && state.leaving > 0)
    return Broken("a node that leaves is in a round that goes on");
  if (state.phase == RunPhase::kSealed) {
    if (state.cause) return Broken("a sealed round has a cause");
    if (!state.start || state.start->round != state.round) return Broken("not this round's Start");
    return CheckSeats(state);
  }
  if (state.phase == RunPhase::kBroken && !state.cause)
    return Broken("a broken round has no cause");
  if (state.phase == RunPhase::kForming && state.rules && !state.restart_due &&
      static_cast<int>(state.members.size()) >= state.rules->nodes_max &&
      state.links.size() == state.members.size()) {
    return Broken("a round with all its nodes was not sealed");
  }
  return absl::OkStatus();
}

// Whoever waits for others does so until a time that is known.
absl::Status CheckDeadlines(const RunState& state) {
  const auto next = NextDeadline(state);
  const bool waits = state.phase == RunPhase::kForming || state.phase == RunPhase::kBroken;
  if (waits && !state.members.empty() && !next) return Broken("a wait without a deadline");
  const bool leased = state.rules && state.rules->lease.count() > 0 && !state.members.empty();
  if (leased && !state.lease_due) return Broken("a lease that nobody looks at");
  return absl::OkStatus();
}

absl::Status CheckVerdict(const RunState& state) {
  if (state.verdict && state.phase != RunPhase::kClosed)
    return Broken("a verdict before the run's end");
  if (state.phase == RunPhase::kClosed && !state.members.empty() && !state.verdict) {
    return Broken("nodes are left in a closed run without a verdict");
  }
  if (state.verdict && state.verdict->success == state.verdict->cause.has_value()) {
    return Broken("a verdict is either a success or has a cause");
  }
  if (state.verdict && state.verdict->success != (state.verdict->exit_code == 0)) {
    return Broken("a verdict's exit code contradicts it");
  }
  if (state.verdict && ClampExitCode(state.verdict->exit_code) != state.verdict->exit_code &&
      !state.verdict->success) {
    return Broken("a verdict's exit code is none that a process can have");
  }
  return absl::OkStatus();
}

absl::Status CheckRestarts(const RunState& before, const RunState& after) {
  if (!after.rules) return absl::OkStatus();
  const RestartHistory& restarts = after.restarts;
  const RestartPolicy& policy = after.rules->restart_policy;
  if (restarts.used < 0 || restarts.used > after.restart_count ||
      restarts.used > after.rules->restarts_max) {
    return Broken("too many restarts, or some count that never were");
  }
  if (policy.window.count() > 0 && static_cast<int>(restarts.times.size()) != restarts.used) {
    return Broken("restarts count whose time is not known");
  }
  if (after.restart_due && after.phase != RunPhase::kForming) {
    return Broken("a round that is over or runs is delayed");
  }
  for (const auto& entry : after.members) {
    const auto host = restarts.hosts.find(entry.second.join.host);
    if (host != restarts.hosts.end() && host->second.left_out) {
      return Broken(absl::StrCat("node ", host->first, " is left out and a member"));
    }
  }
  if (after.restart_count > before.restart_count && before.phase == RunPhase::kBroken) {
    const auto& cause = after.cause ? after.cause : after.last_cause;
    if (WhyNoRestart(before.restarts, policy, after.rules->restarts_max, *cause, before.broke)) {
      return Broken("a restart that the policy forbids");
    }
  }
  return absl::OkStatus();
}

// But for what was learnt of the others.
bool IsSameFailure(Failure before, const Failure& after) {
  if (before.hang && after.hang) before.hang->others_step = after.hang->others_step;
  before.places = after.places;
  return before == after;
}

absl::Status CheckProgress(const RunState& before, const RunState& after) {
  const auto from = ToNumber(before.round);
  const auto to = ToNumber(after.round);
  if (to != from && to != from + 1) return Broken("the round went back or was skipped");
  // A round that ended since somebody left as he was asked to is no restart.
  const auto& ended_by = after.cause ? after.cause : after.last_cause;
  const bool counts = !ended_by || IsFailure(*ended_by);
  const int restarts = to != from && counts ? 1 : 0;
  if (after.restart_count - before.restart_count != restarts) {
    return Broken("restarts and rounds are not counted alike");
  }
  if (absl::Status status = CheckRestarts(before, after); !status.ok()) return status;
  if (to != from && before.phase != RunPhase::kSealed && before.phase != RunPhase::kBroken) {
    return Broken("a round was left that had not been sealed");
  }
  const bool still = after.phase == RunPhase::kBroken || after.phase == RunPhase::kClosed;
  if (before.phase == RunPhase::kBroken && still && before.cause != after.cause &&
      after.cause->kind != FailureKind::kNodeLost &&
      after.cause->kind != FailureKind::kRunStopped &&
      after.cause->kind != FailureKind::kNodeInterrupted &&
      !TakesThePlaceOf(*after.cause, *before.cause) &&
      !IsSameFailure(*before.cause, *after.cause)) {
    return Broken("the cause changed, and not to what explains it");
  }
  if (before.phase == RunPhase::kClosed && after.phase != RunPhase::kClosed)
    return Broken("a closed run opened");
  if (before.verdict && before.verdict != after.verdict) return Broken("the verdict changed");
  if (!before.may_restart && after.may_restart)
    return Broken("a run that may not restart may again");
  if (!after.rules || after.rules->nodes_min != after.rules->nodes_max) return absl::OkStatus();
  for (const auto& [id, member] : after.members) {
    const auto it = before.members.find(id);
    if (it == before.members.end() || !it->second.seated) continue;
    if (it->second.node_rank == member.node_rank) continue;
    // One that stood by may have asked for it before it was given.
    const auto place = after.places.find(it->second.node_rank.value_or(-1));
    const bool was_asked_for = place != after.places.end() &&
                               after.members.at(place->second).join.node_rank == place->first;
    if (!was_asked_for || member.join.node_rank) {
      return Broken(absl::StrCat("node ", member.join.host, " lost its rank"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckInvariants(const RunState& before, const RunState& after) {
  if (!after.members.empty() && !after.rules) return Broken("members without rules");
  absl::Status status = CheckMembers(after);
  status.Update(CheckPhase(after));
  status.Update(CheckRankOrder(before, after));
  status.Update(CheckDeadlines(after));
  status.Update(CheckVerdict(after));
  status.Update(CheckProgress(before, after));
  return status;
}

}  // namespace ddprun
