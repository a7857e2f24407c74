// SPDX-License-Identifier: Apache-2.0
// A run with invented nodes and an invented clock. After every step the invariants are checked.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "proto/version.h"
#include "rendezvous/membership/membership.h"
#include "tests/testing/membership_invariants.h"

namespace ddprun {

struct JoinOptions {
  int nodes = 2;
  int restarts = 0;
  int local_world_size = 1;
  std::optional<int> node_rank;
  std::chrono::milliseconds join_timeout{60'000};
  std::optional<int> nodes_min;        // absent: `nodes`
  std::chrono::milliseconds lease{0};  // 0: a stream's end is its node's end
  std::chrono::milliseconds last_call{5'000};
  bool resume = false;
  std::chrono::milliseconds stop_timeout{0};
  RestartPolicy policy;
  bool hosts_service = false;
  bool evict_stragglers = false;
  std::string role;
  bool hears_preemption = false;
  std::vector<RoleWorkers> roles;
  bool ranks_by_role = false;
  RankOrder rank_order = RankOrder::kJoin;
  std::string topology;
  std::string traceparent;
};

inline Join MakeJoin(const std::string& host, JoinOptions options) {
  Join join;
  join.protocol_version = kProtocolVersion;
  join.software_version = "0";
  join.run_id = "run";
  join.node_id = NodeId{"id-" + host};
  join.host = host;
  join.node_rank = options.node_rank;
  join.local_world_size = options.local_world_size;
  join.nodes_min = options.nodes_min.value_or(options.nodes);
  join.nodes_max = options.nodes;
  join.restarts_max = options.restarts;
  join.address = "addr-" + host;
  join.worker_port = 4000;
  join.join_timeout = options.join_timeout;
  join.last_call = options.last_call;
  join.lease = options.lease;
  join.resume = options.resume;
  join.stop_timeout = options.stop_timeout;
  join.restart_policy = options.policy;
  join.hosts_service = options.hosts_service;
  join.evict_stragglers = options.evict_stragglers;
  join.role = options.role;
  join.hears_preemption = options.hears_preemption;
  join.roles = options.roles;
  join.ranks_by_role = options.ranks_by_role;
  join.rank_order = options.rank_order;
  join.topology = options.topology;
  join.traceparent = options.traceparent;
  return join;
}

inline Failure ExitedWith(int exit_code) {
  Failure failure;
  failure.kind = FailureKind::kWorkerExited;
  failure.rank = 0;
  failure.local_rank = 0;
  failure.host = "x";
  failure.node_rank = 0;
  failure.exit_code = exit_code;
  return failure;
}

inline Failure InterruptedBy(int signal) {
  Failure failure;
  failure.kind = FailureKind::kNodeInterrupted;
  failure.signal = signal;
  return failure;
}

class TestRun {
 public:
  RunState state = MakeRun("run");
  TimePoint now{std::chrono::hours(1)};
  std::vector<MembershipEffect> effects;  // of the last step, but for its notes
  std::vector<RunNotice> notes;           // of the last step

  void Do(const MembershipEvent& event) {
    const RunState before = state;
    effects.clear();
    notes.clear();
    for (MembershipEffect& effect : Step(state, event, now)) {
      if (auto* note = std::get_if<RunNotice>(&effect)) {
        notes.push_back(std::move(*note));
      } else {
        effects.push_back(std::move(effect));
      }
    }
    const absl::Status status = CheckInvariants(before, state);
    EXPECT_TRUE(status.ok()) << status;
  }

  // Links are given in order of joining, from 1.
  LinkId Joins(const std::string& host, JoinOptions options = {}) {
    const LinkId link{++links_};
    Do(NodeJoined{link, MakeJoin(host, options)});
    return link;
  }
  void Reports(LinkId link, const Report& report) {
    MembershipEvent event;  // filled in place: g++ 12 takes a move for a use of what is not set
    event.emplace<NodeReported>(link, report);
    Do(event);
  }
  void Goes(LinkId link) { Do(NodeGone{link}); }
  void TicksAt(TimePoint time) {
    now = time;
    Do(Tick{});
  }

  // The time until then passes with all ticks that the run asks for. TicksAt() is a service that
  // was suspended, if a tick was due before.
  void PassesUntil(TimePoint time) {
    for (auto due = NextDeadline(state); due && *due < time; due = NextDeadline(state))
      TicksAt(std::max(now, *due));
    TicksAt(time);
  }

  // What the last step sent to the link, if that was one directive of the type.
  template <typename T>
  std::optional<T> Sent(LinkId link) const {
    std::optional<T> found;
    for (const MembershipEffect& effect : effects) {
      const auto* send = std::get_if<SendDirective>(&effect);
      if (send == nullptr || send->link != link) continue;
      if (const T* directive = std::get_if<T>(&send->directive)) {
        EXPECT_FALSE(found) << "sent twice";
        found = *directive;
      }
    }
    return found;
  }
  bool Ended(LinkId link) const {
    for (const MembershipEffect& effect : effects) {
      const auto* end = std::get_if<EndStream>(&effect);
      if (end != nullptr && end->link == link) return true;
    }
    return false;
  }
  std::optional<RoundId> ChangedRound() const {
    for (const MembershipEffect& effect : effects) {
      if (const auto* changed = std::get_if<RoundChanged>(&effect)) return changed->round;
    }
    return std::nullopt;
  }
  std::string RefusalOf(LinkId link) const {
    const auto refused = Sent<Refused>(link);
    if (!refused) return "not refused";
    EXPECT_TRUE(Ended(link));
    return std::string(refused->status.message());
  }

 private:
  std::uint64_t links_ = 0;
};

}  // namespace ddprun
