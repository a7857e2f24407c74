// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/run_status.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/restart_rules.h"
#include "rendezvous/values/first_cause.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

milliseconds Between(TimePoint from, TimePoint to) {
  return std::max(milliseconds{0}, std::chrono::duration_cast<milliseconds>(to - from));
}

NodeState StateOf(const RunState& state, const Member& member) {
  if (!member.link && state.phase != RunPhase::kClosed) return NodeState::kAway;
  switch (member.phase) {
    case MemberPhase::kWaiting:
      return state.phase == RunPhase::kForming ? NodeState::kWaiting : NodeState::kSpare;
    case MemberPhase::kRunning:
      return NodeState::kRunning;
    case MemberPhase::kSucceeded:
      return NodeState::kSucceeded;
    case MemberPhase::kStopping:
      return NodeState::kStopping;
    case MemberPhase::kStopped:
      return NodeState::kStopped;
  }
  return NodeState::kWaiting;
}

NodeStatus StatusOf(const RunState& state, const Member& member, TimePoint now) {
  const bool in_round = member.phase != MemberPhase::kWaiting;
  return {.node_id = member.join.node_id,
          .host = member.join.host,
          .address = member.join.address,
          .node_rank = member.node_rank,
          .state = StateOf(state, member),
          .rank_first = in_round ? member.rank_first : 0,
          .ranks = in_round ? member.join.local_world_size : 0,
          .silent = Between(member.last_seen, now),
          .roles = in_round ? member.join.roles : std::vector<RoleWorkers>(),
          .topology = member.join.topology};
}

std::vector<const Member*> InOrder(const RunState& state) {
  std::vector<const Member*> members;
  members.reserve(state.members.size());
  for (const auto& entry : state.members) members.push_back(&entry.second);
  const auto key = [](const Member* member) {
    const bool in_round = member->phase != MemberPhase::kWaiting;
    return std::tuple(!in_round, member->node_rank.value_or(std::numeric_limits<int>::max()),
                      member->order);
  };
  std::sort(members.begin(), members.end(),
            [&key](const Member* a, const Member* b) { return key(a) < key(b); });
  return members;
}

std::optional<Failure> WithoutOutput(std::optional<Failure> failure) {
  if (failure) failure->last_lines.clear();
  return failure;
}

void FillWait(const RunState& state, TimePoint now, RunStatus& status) {
  if (!state.rules) {
    status.reason = "no node has joined yet";
    return;
  }
  if (state.phase == RunPhase::kForming) {
    status.reason = WaitingWords(state);
    status.remaining = Between(now, FormingUntil(state));
  } else if (state.phase == RunPhase::kBroken) {
    status.reason = WaitingWords(state);
    status.remaining = Between(now, state.deadline);
  }
}

void FillLeftOut(const RunState& state, TimePoint now, RunStatus& status) {
  const RestartPolicy& policy = state.rules->restart_policy;
  for (const auto& [name, host] : state.restarts.hosts) {
    if (status.left_out.size() >= kStatusLeftOutMax) return;
    if (FindLeftOut(state.restarts, policy, name, now) == nullptr) continue;
    LeftOutStatus& left_out = status.left_out.emplace_back();
    left_out.host = name;
    left_out.failures = static_cast<int>(host.times.size());
    if (policy.node_cooldown.count() > 0) {
      left_out.remaining = Between(now, *host.left_out + policy.node_cooldown);
    }
  }
}

// Null: none, or of another round.
const ReportedProgress* FindReported(const RunState& state, const Member& member,
                                     const ReportedProgresses& reported) {
  if (state.phase != RunPhase::kSealed || member.phase == MemberPhase::kWaiting) return nullptr;
  const auto it = reported.find(member.join.node_id);
  return it != reported.end() && it->second.round == state.round ? &it->second : nullptr;
}

void FillProgress(const RunState& state, TimePoint now, const ReportedProgresses& reported,
                  RunStatus& status) {
  std::vector<const Progress*> all;
  TimePoint last{};
  double losses = 0;
  int with_loss = 0;
  for (const auto& entry : state.members) {
    const ReportedProgress* one = FindReported(state, entry.second, reported);
    if (one == nullptr) continue;
    all.push_back(&one->progress);
    last = std::max(last, one->reported);
    for (const RankReport& rank : one->ranks) {
      if (!rank.loss) continue;
      losses += *rank.loss;
      ++with_loss;
    }
  }
  if (all.empty()) return;
  status.progress = Summarize(all);
  status.progress_age = Between(last, now);
  if (with_loss > 0) status.loss = losses / with_loss;
}

}  // namespace

Progress Summarize(const std::vector<const Progress*>& all) {
  if (all.empty()) return {};
  const Progress* behind = all.front();
  for (const Progress* one : all) {
    const bool says_more = behind->step < 0 && one->step >= 0;
    if (says_more || IsBehind(*one, *behind)) behind = one;
  }
  Progress together = *behind;
  together.rate = 0;
  together.damages = 0;
  together.damaged_rank = -1;
  bool all_checked = true;
  std::int64_t most = 0;
  for (const Progress* one : all) {
    if (together.rate_unit.empty()) together.rate_unit = one->rate_unit;
    if (one->rate_unit == together.rate_unit) together.rate += one->rate;
    all_checked = all_checked && one->damages >= 0;
    together.damages += one->damages;
    if (one->damages > 0 && one->damages >= most) {
      most = one->damages;
      together.damaged_rank = one->damaged_rank;
    }
    if (!together.accuracy) together.accuracy = one->accuracy;
    if (one->slow_rank < 0 || one->slowness < together.slowness) continue;
    together.slow_rank = one->slow_rank;
    together.slowness = one->slowness;
  }
  // A sum without some of them would seem to fall and rise again.
  if (!all_checked) together.damages = together.damaged_rank = -1;
  return together;
}

RunStatus StatusOf(const RunState& state, TimePoint now, std::size_t nodes_max,
                   const ReportedProgresses& reported, std::size_t ranks_max) {
  RunStatus status;
  status.run_id = state.run_id;
  status.phase = state.phase;
  status.round = state.round;
  FillWait(state, now, status);
  if (state.rules) {
    status.nodes_min = state.rules->nodes_min;
    status.nodes_max = state.rules->nodes_max;
    status.restarts_max = state.rules->restarts_max;
    status.rank_order = state.rules->rank_order;
    status.restarts_forgiven = RestartsForgiven(state, now);
    FillLeftOut(state, now, status);
  }
  if (state.start && state.phase != RunPhase::kForming) status.world_size = state.start->world_size;
  status.restarts_used = state.restart_count;
  status.last_failure = WithoutOutput(state.cause ? state.cause : state.last_cause);
  if (state.verdict) {
    status.verdict = state.verdict;
    status.verdict->cause = WithoutOutput(std::move(status.verdict->cause));
  }
  status.time = TimeOf(state);
  if (state.phase != RunPhase::kClosed) status.preemption = PreemptionOf(state, now);
  if (state.phase == RunPhase::kSealed) status.still = StillIn(state);
  status.node_count = static_cast<int>(state.members.size());
  const std::vector<const Member*> members = InOrder(state);
  const std::size_t shown = std::min(members.size(), nodes_max);
  status.nodes.reserve(shown);
  for (std::size_t i = 0; i < shown; ++i) {
    NodeStatus& node = status.nodes.emplace_back(StatusOf(state, *members[i], now));
    if (const ReportedProgress* one = FindReported(state, *members[i], reported)) {
      node.progress = one->progress;
      node.progress_age = Between(one->reported, now);
      if (one->ranks.size() <= ranks_max) {
        node.rank_reports = one->ranks;
        ranks_max -= one->ranks.size();
      }
    }
  }
  FillProgress(state, now, reported, status);
  return status;
}

void TakeProgress(const RunState& state, LinkId link, const Heartbeat& heartbeat, TimePoint now,
                  ReportedProgresses& reported) {
  const auto node = state.links.find(link);
  if (heartbeat.progress_round == kNoRound || node == state.links.end()) return;
  // A report of ranks that do not move has no progress, or that of the one before.
  if (heartbeat.progress == Progress{}) return;
  ReportedProgress& last = reported[node->second];
  last.ranks = heartbeat.ranks;
  const auto places =
      static_cast<std::size_t>(std::max(0, state.members.at(node->second).join.local_world_size));
  if (last.ranks.size() > places) last.ranks.resize(places);
  if (last.round == heartbeat.progress_round && last.progress == heartbeat.progress) return;
  last.round = heartbeat.progress_round;
  last.progress = heartbeat.progress;
  last.reported = now;
  if (reported.size() <= state.members.size()) return;
  std::erase_if(reported, [&](const auto& entry) { return !state.members.contains(entry.first); });
}

}  // namespace ddprun
