// SPDX-License-Identifier: Apache-2.0
// What the journal says about a run brings the same run back: every field of its state, every
// event, and the store.
#include "rendezvous/journal/journal_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <type_traits>
#include <utility>

#include "proto/journal.pb.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/session_convert.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

// The fields of each struct of RunState. A new field does not compile until it is named here; then
// it is filled and compared, and the tests fail until the snapshot has it.
template <typename Struct>
requires std::is_same_v<std::remove_const_t<Struct>, HostFailures>
auto Fields(Struct& host) {
  auto& [times, left_out, exit_code] = host;
  return std::tie(times, left_out, exit_code);
}
template <typename Struct>
requires std::is_same_v<std::remove_const_t<Struct>, RestartHistory>
auto Fields(Struct& history) {
  auto& [used, times, step, step_before, no_progress, hosts] = history;
  return std::tie(used, times, step, step_before, no_progress, hosts);
}
template <typename Struct>
requires std::is_same_v<std::remove_const_t<Struct>, PreemptionNotice>
auto Fields(Struct& notice) {
  auto& [number, until, node_id, reason] = notice;
  return std::tie(number, until, node_id, reason);
}
template <typename Struct>
requires std::is_same_v<std::remove_const_t<Struct>, MemberNotice>
auto Fields(Struct& notice) {
  auto& [until, given, reason] = notice;
  return std::tie(until, given, reason);
}
template <typename Struct>
requires std::is_same_v<std::remove_const_t<Struct>, Suspension>
auto Fields(Struct& suspension) {
  auto& [end, length] = suspension;
  return std::tie(end, length);
}
template <typename Struct>
requires std::is_same_v<std::remove_const_t<Struct>, KnownHost>
auto Fields(Struct& host) {
  auto& [address, addresses] = host;
  return std::tie(address, addresses);
}
template <typename Struct>
requires std::is_same_v<std::remove_const_t<Struct>, Member>
auto Fields(Struct& member) {
  auto& [join, order, node_rank, seated, rank_first, role_rank_first, role_world_size, drained_by,
         leaving, can_be_kept, prepares, phase, link, heard, words_told, time, time_at, slow_rank,
         damages, damages_reported, roles, still, notice, saved_for] = member;
  return std::tie(join, order, node_rank, seated, rank_first, role_rank_first, role_world_size,
                  drained_by, leaving, can_be_kept, prepares, phase, link, heard, words_told, time,
                  time_at, slow_rank, damages, damages_reported, roles, still, notice, saved_for);
}
template <typename Struct>
requires std::is_same_v<std::remove_const_t<Struct>, RunState>
auto Fields(Struct& state) {
  auto& [run_id, durable, phase, round, restart_count, restarts, rules, members, links, places,
         asked, hosts, joins, waiting, running, stopping, leaving, kept, cause, last_cause, broke,
         was_kept, outcomes, sealed, left_out, may_restart, deadline, last_call_due, restart_due,
         lease_due, suspension, start, verdict, words, words_version, words_due, words_sent,
         time_gone, stalled_in, stall_due, stall_look_due, late_due, preemption, drain_due] = state;
  return std::tie(run_id, durable, phase, round, restart_count, restarts, rules, members, links,
                  places, asked, hosts, joins, waiting, running, stopping, cause, last_cause, broke,
                  was_kept, sealed, left_out, may_restart, deadline, last_call_due, restart_due,
                  lease_due, suspension, start, verdict, words, words_version, words_due,
                  words_sent, time_gone, stalled_in, stall_due, stall_look_due, late_due,
                  preemption, drain_due);
}

template <typename T>
bool Same(const std::optional<T>& a, const std::optional<T>& b);
template <typename Key, typename T>
bool Same(const std::map<Key, T>& a, const std::map<Key, T>& b);

template <typename T>
bool Same(const T& a, const T& b) {
  if constexpr (requires { Fields(a); }) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return (Same(std::get<i>(Fields(a)), std::get<i>(Fields(b))) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(Fields(a))>>());
  } else {
    return a == b;
  }
}
template <typename T>
bool Same(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() == b.has_value() && (!a || Same(*a, *b));
}
template <typename Key, typename T>
bool Same(const std::map<Key, T>& a, const std::map<Key, T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && Same(x.second, y.second);
  });
}

// Any value of any type, mostly not the default.
class Anything {
 public:
  explicit Anything(unsigned seed) : random_(seed) {}

  template <typename T>
  void Fill(T& to) {
    if constexpr (std::is_same_v<T, bool>) {
      to = random_() % 2 == 0;
    } else if constexpr (std::is_same_v<T, RunPhase>) {
      to = static_cast<T>(random_() % 4);
    } else if constexpr (std::is_same_v<T, MemberPhase>) {
      to = static_cast<T>(random_() % 5);
    } else if constexpr (std::is_same_v<T, OnJoin> || std::is_same_v<T, RankOrder>) {
      to = static_cast<T>(random_() % 3);
    } else if constexpr (std::is_same_v<T, FailureKind> || std::is_same_v<T, EndKind>) {
      to = static_cast<T>(1 + random_() % 6);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      to = static_cast<T>(random_());
    } else {
      std::apply([&](auto&... field) { All(field...); }, Fields(to));
    }
  }
  // UTF-8, as everything that has been through session_convert.h.
  void Fill(std::string& to) { to = "text \xC3\xA4 " + std::to_string(random_()); }
  void Fill(NodeId& to) { Fill(to.value); }
  void Fill(TimePoint& to) {
    to = TimePoint(std::chrono::nanoseconds(static_cast<std::int64_t>(random_() / 4)));
  }
  void Fill(std::chrono::milliseconds& to) {
    to = std::chrono::milliseconds(random_() % 1'000'000'000);
  }
  void Fill(RankTime& to) {
    for (auto& time : to.times) time = std::chrono::microseconds(random_() % 1'000'000'000);
  }
  void Fill(Failure& to) {
    auto& [kind, rank, local_rank, node_rank, host, pid, exit_code, signal, message, lines, age,
           oom, core_file, traceback, hang, places, asked_by, role, role_rank, advice] = to;
    lines.resize(2);
    places.resize(2);
    All(kind, rank, local_rank, node_rank, host, pid, exit_code, signal, message, lines[0],
        lines[1], age, oom, core_file, traceback, hang, places[0], places[1], asked_by, role,
        role_rank, advice);
  }
  void Fill(RanksInPlace& to) {
    auto& [ranks, place] = to;
    auto& [waits, last] = place;
    const int first = static_cast<int>(random_() % 1000);
    ranks = {{first, first + static_cast<int>(random_() % 8)}};
    last.resize(2);
    All(waits, last[0], last[1]);
  }
  void Fill(Collective& to) {
    auto& [group, number, name, bytes, dtype] = to;
    number = static_cast<std::int64_t>(random_() % 1'000'000);
    bytes = static_cast<std::int64_t>(random_() % 1'000'000);
    All(group, name, dtype);
  }
  void Fill(Hang& to) {
    auto& [kind, silent, step, section, others_step, stack] = to;
    stack.resize(2);
    kind = static_cast<HangKind>(1 + random_() % 3);
    step = static_cast<std::int64_t>(random_() % 1'000'000);
    others_step = static_cast<std::int64_t>(random_() % 1'000'000);
    All(silent, section, stack[0], stack[1]);
  }
  void Fill(OomKill& to) {
    auto& [used_bytes, limit_bytes, of_cgroup] = to;
    All(used_bytes, limit_bytes, of_cgroup);
  }
  void Fill(std::vector<WorkerOutcomes>& to) {
    to.resize(2);
    for (auto& [kind, code, count, ranges, hosts] : to) {
      ranges.resize(2);
      hosts.resize(1);
      All(kind, code, count, ranges[0].first, ranges[0].last, ranges[1].first, ranges[1].last,
          hosts[0]);
    }
  }
  void Fill(Verdict& to) {
    auto& [success, cause, exit_code, round, restart_count, restarts_max, world_size, node_count,
           outcomes, restarts_forgiven, not_restarted, time] = to;
    All(success, cause, exit_code, round, restart_count, restarts_max, world_size, node_count,
        outcomes, restarts_forgiven, not_restarted, time);
  }
  void Fill(Join& to) {
    auto& [protocol_version, software_version, run_id, node_id, host, node_rank, local_world_size,
           nodes_min, nodes_max, restarts_max, address, worker_port, join_timeout, last_call, lease,
           resume, stop_timeout, restart_policy, hosts_service, role, evict_stragglers, addresses,
           hears_preemption, roles, ranks_by_role, rank_order, topology, traceparent] = to;
    All(protocol_version, software_version, run_id, node_id, host, node_rank, local_world_size,
        nodes_min, nodes_max, restarts_max, address, worker_port, join_timeout, last_call, lease,
        resume, stop_timeout, restart_policy, hosts_service, role, evict_stragglers, addresses,
        hears_preemption, roles, ranks_by_role, rank_order, topology, traceparent);
  }
  void Fill(ExitCodeRange& to) {
    auto& [first, last] = to;
    All(first, last);
  }
  void Fill(RestartPolicy& to) {
    auto& [window, reset, no_progress_max, never_codes, only_codes, node_failures_max,
           node_cooldown, delay, delay_max, on_join] = to;
    All(window, reset, no_progress_max, never_codes, only_codes, node_failures_max, node_cooldown,
        delay, delay_max, on_join);
  }
  void Fill(Start& to) {
    auto& [round, run_id, node_rank, node_count, rank_first, world_size, master_addr, master_port,
           restart_count, restarts_max, restarts_forgiven, left_out, role_rank_first,
           role_world_size, roles, traceparent] = to;
    All(round, run_id, node_rank, node_count, rank_first, world_size, master_addr, master_port,
        restart_count, restarts_max, restarts_forgiven, left_out, role_rank_first, role_world_size,
        roles, traceparent);
  }
  void Fill(RoleWorkers& to) {
    auto& [name, workers, worker_port] = to;
    All(name, workers, worker_port);
  }
  void Fill(RoleRanks& to) {
    auto& [rank_first, world_size, node_rank, node_count, master_addr, master_port] = to;
    All(rank_first, world_size, node_rank, node_count, master_addr, master_port);
  }
  template <typename T>
  void Fill(std::optional<T>& to) {
    to.reset();
    if (random_() % 4 != 0) Fill(to.emplace());
  }
  template <typename T>
  void Fill(std::vector<T>& to) {
    to.resize(random_() % 4);
    for (T& one : to) Fill(one);
  }
  template <typename Key, typename T>
  void Fill(std::map<Key, T>& to) {
    to.clear();
    for (auto i = random_() % 5; i > 0; --i) {
      Key key{};
      Fill(key);
      Fill(to[key]);
    }
  }

 private:
  template <typename... T>
  void All(T&... to) {
    (Fill(to), ...);
  }

  std::mt19937_64 random_;
};

JournalRecord Back(const JournalRecord& record) {
  const auto back = DecodeJournalRecord(EncodeJournalRecord(record));
  EXPECT_TRUE(back.ok()) << back.status();
  return back.ok() ? *back : JournalRecord{};
}

template <typename T>
T BackAs(T what) {
  const JournalRecord back =
      Back({.run = 3, .now = TimePoint(std::chrono::nanoseconds(-5)), .what = std::move(what)});
  EXPECT_EQ(back.run, 3u);
  EXPECT_EQ(back.now, TimePoint(std::chrono::nanoseconds(-5)));
  EXPECT_TRUE(std::holds_alternative<T>(back.what));
  return std::get<T>(back.what);
}

TEST(JournalRecordsTest, ASnapshotHasEveryFieldOfARun) {
  Anything anything(1);
  for (int i = 0; i < 500; ++i) {
    RunState state;
    anything.Fill(state);
    for (auto members = std::exchange(state.members, {}); auto& entry : members) {
      state.members.emplace(entry.second.join.node_id, std::move(entry.second));
    }
    Reindex(state);
    const RunSnapshot back = BackAs(RunSnapshot{17, state});
    EXPECT_EQ(back.last_link, 17u);
    ASSERT_TRUE(Same(back.state, state));
  }
  EXPECT_TRUE(Same(BackAs(RunSnapshot{0, MakeRun("")}).state, MakeRun("")));
}

TEST(JournalRecordsTest, EveryKindOfRecordComesBack) {
  EXPECT_EQ(BackAs(RunOpened{"run \xff"}).run_id, "run \xff");
  BackAs(RunForgotten{});
  const Join join = MakeJoin("a", {.node_rank = 1});
  const auto joined = std::get<NodeJoined>(BackAs(MembershipEvent(NodeJoined{LinkId{4}, join})));
  EXPECT_EQ(joined.link, LinkId{4});
  EXPECT_EQ(joined.join, join);
  for (const Report& report :
       {Report(join), Report(WorkerFailed{RoundId{2}, ExitedWith(3)}),
        Report(NodeSucceeded{RoundId{4}}), Report(NodeStopped{RoundId{5}, 6}),
        Report(Leave{ExitedWith(7), true, true}), Report(Heartbeat{}),
        Report(Heartbeat{RoundId{3}, {7, 1, 310.5, "images", "data"}}),
        Report(PreemptionReport{std::chrono::seconds(120), "SIGUSR1"})}) {
    const auto reported =
        std::get<NodeReported>(BackAs(MembershipEvent(NodeReported{LinkId{9}, report})));
    EXPECT_EQ(reported.link, LinkId{9});
    EXPECT_TRUE(reported.report == report);
  }
  EXPECT_EQ(std::get<NodeGone>(BackAs(MembershipEvent(NodeGone{LinkId{8}}))).link, LinkId{8});
  const auto lost = std::get<NodeLost>(BackAs(MembershipEvent(NodeLost{NodeId{"id \xff"}, "w"})));
  EXPECT_EQ(lost.node_id, NodeId{"id \xff"});
  EXPECT_EQ(lost.reason, "w");
  const auto stopped = std::get<RunStopped>(BackAs(MembershipEvent(RunStopped{"desk", true})));
  EXPECT_TRUE(stopped.by == "desk" && stopped.now);
  const auto drained =
      std::get<NodeDrained>(BackAs(MembershipEvent(NodeDrained{NodeId{"id"}, "desk", true})));
  EXPECT_TRUE(drained.node_id == NodeId{"id"} && drained.by == "desk" && drained.at_next_round);
  EXPECT_TRUE(std::holds_alternative<Tick>(BackAs(MembershipEvent(Tick{}))));

  const StoreMutation mutation = {"node", 1ull << 63,
                                  StoreOp{StoreVerb::kMultiSet,
                                          RoundId{2},
                                          {"k", std::string("\0\xff", 2)},
                                          {"", std::string(100'000, 'v')},
                                          -3,
                                          std::chrono::milliseconds(1'234)}};
  const auto same = BackAs(mutation);
  EXPECT_EQ(same.node_id, mutation.node_id);
  EXPECT_EQ(same.id, mutation.id);
  EXPECT_EQ(same.op, mutation.op);

  StoreAnswer answer;
  answer.node_id = "node";
  answer.id = 5;
  answer.result = {absl::AbortedError("why"), {"v", ""}, -1, {"k"}};
  const auto same_answer = BackAs(answer);
  EXPECT_EQ(same_answer.node_id, "node");
  EXPECT_EQ(same_answer.id, 5u);
  EXPECT_EQ(same_answer.result, answer.result);
}

TEST(JournalRecordsTest, WhatIsNoRecordIsAnError) {
  EXPECT_EQ(DecodeJournalRecord("").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeJournalRecord("\xff").status().code(), absl::StatusCode::kDataLoss);
  std::mt19937 random(2);
  const std::string good = EncodeJournalRecord(
      {.run = 1, .what = MembershipEvent(NodeReported{LinkId{1}, Leave{ExitedWith(1), false}})});
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random() % 128);
    }
    const auto record = DecodeJournalRecord(bytes);
    EXPECT_TRUE(record.ok() || absl::IsDataLoss(record.status())) << record.status();
  }
}

// A run, the journal of it, and the same journal with a snapshot in its middle, all lead to one
// state.
TEST(JournalRecordsTest, ReplayingARunGivesItsState) {
  std::mt19937 random(3);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  for (int history = 0; history < 50; ++history) {
    TestRun run;
    std::vector<std::string> records;
    std::uint64_t links = 0;
    const auto happen = [&](const MembershipEvent& event) {
      run.now += std::chrono::nanoseconds(random());
      records.push_back(EncodeJournalRecord({.run = 1, .now = run.now, .what = event}));
      run.Do(event);
    };
    const auto snapshot_at = static_cast<std::size_t>(below(60));
    std::string snapshot;
    for (int i = 0; i < 60; ++i) {
      if (records.size() == snapshot_at) {
        snapshot = EncodeJournalRecord({.run = 1, .what = RunSnapshot{links, run.state}});
      }
      const LinkId link{1 + static_cast<std::uint64_t>(below(static_cast<int>(links) + 1))};
      switch (below(6)) {
        case 0:
        case 1:
          ++links;
          happen(NodeJoined{LinkId{links}, MakeJoin("h" + std::to_string(links), {.restarts = 5})});
          break;
        case 2:
          happen(NodeReported{link, WorkerFailed{run.state.round, ExitedWith(below(200))}});
          break;
        case 3:
        case 4:
          happen(NodeReported{link, NodeStopped{run.state.round, below(65536)}});
          break;
        default:
          if (below(3) == 0)
            happen(NodeGone{link});
          else if (below(4) == 0)
            happen(NodeLost{NodeId{"id-h" + std::to_string(links)}, "dead"});
          else
            happen(Tick{});
      }
    }
    for (const bool from_snapshot : {false, true}) {
      RunState state = MakeRun("run");
      std::size_t first = 0;
      if (from_snapshot) {
        const JournalRecord record = *DecodeJournalRecord(snapshot);
        state = std::get<RunSnapshot>(record.what).state;
        first = snapshot_at;
      }
      for (std::size_t i = first; i < records.size(); ++i) {
        const JournalRecord record = *DecodeJournalRecord(records[i]);
        Step(state, std::get<MembershipEvent>(record.what), record.now);
      }
      ASSERT_TRUE(Same(state, run.state)) << history;
    }
    ASSERT_FALSE(HasFailure()) << history;
  }
}

// Text of a node that is too long is cut when it comes in. What was acted on then must be what the
// journal says.
TEST(JournalRecordsTest, WhatCameFromANodeIsJournalledAsItWasActedOn) {
  const std::string of_two = "\xC3\xA4";
  const std::string of_three = "\xE2\x82\xAC";
  const std::string of_four = "\xF0\x9F\x98\x80";
  for (const std::string& letter : {of_two, of_three, of_four}) {
    for (std::size_t shift = 0; shift < 4; ++shift) {
      v1::Report message;
      v1::Failure* failure = message.mutable_worker_failed()->mutable_failure();
      std::string text(shift, 'x');
      while (text.size() < (64u << 10)) text += letter;
      failure->set_message(text);
      failure->set_host(text.substr(0, shift + 100 * letter.size()));
      failure->add_last_lines(text);
      const Report acted_on = *FromProto(message);
      EXPECT_GT(std::get<WorkerFailed>(acted_on).failure.last_lines[0].size(),
                kLastLineBytesMax - 4);
      const auto back =
          std::get<NodeReported>(BackAs(MembershipEvent(NodeReported{LinkId{1}, acted_on})));
      EXPECT_TRUE(back.report == acted_on);
    }
  }
}

// ---- The store

TEST(JournalRecordsTest, TheRebuildingOpsFillAnEmptyStoreAlike) {
  std::mt19937 random(4);
  KvStore store(RoundId{7});
  std::uint64_t tickets = 0;
  const auto submit = [&](KvStore& to, StoreOp op) {
    const auto answers = to.Submit(StoreTicket{++tickets}, std::move(op), TimePoint());
    for (const auto& answer : answers) EXPECT_TRUE(answer.result.status.ok());
  };
  for (int i = 0; i < 300; ++i) {
    StoreOp op;
    op.round = RoundId{7};
    op.verb = i % 3 == 0 ? StoreVerb::kQueuePush : StoreVerb::kSet;
    op.keys = {"key " + std::to_string(random() % 200)};
    op.values = {std::string(random() % 50, static_cast<char>(random()))};
    submit(store, op);
  }
  for (const std::size_t bytes_max : {std::size_t{1}, std::size_t{500}, kJournalPartBytes}) {
    KvStore rebuilt(RoundId{7});
    std::size_t largest = 0;
    int sets = 0;
    ForEachRebuildingOp(store, bytes_max, [&](StoreOp op) {
      std::size_t bytes = 0;
      for (const std::string& value : op.values) bytes += value.size();
      for (const std::string& key : op.keys) bytes += key.size();
      largest = std::max(largest, op.verb == StoreVerb::kMultiSet ? bytes : 0);
      sets += op.verb == StoreVerb::kMultiSet ? 1 : 0;
      submit(rebuilt, std::move(op));
    });
    EXPECT_TRUE(rebuilt.values() == store.values());
    EXPECT_TRUE(rebuilt.queues() == store.queues());
    EXPECT_LE(largest, std::max<std::size_t>(bytes_max, 60));
    EXPECT_EQ(sets == 1, bytes_max == kJournalPartBytes);
  }
}

// ---- Time

TEST(JournalRecordsTest, TheClockGoesOnWhereTheLastServiceStopped) {
  using std::chrono::seconds;
  const TimePoint last(seconds(100));
  const TimePoint started(seconds(5));  // steady time, of a machine that has been booted since
  const JournalClock clock(last, started);
  EXPECT_EQ(clock.ToJournal(started), last);
  EXPECT_EQ(clock.ToJournal(started + seconds(3)), last + seconds(3));
  EXPECT_EQ(clock.ToSteady(last + seconds(30)), started + seconds(30));
}

}  // namespace
}  // namespace ddprun
