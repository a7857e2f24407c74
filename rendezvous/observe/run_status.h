// SPDX-License-Identifier: Apache-2.0
// The status of a run for people and programs: its nodes, their progress, and what the run waits
// for. Pure: computed from a run's state.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun {

enum class NodeState {
  kWaiting = 1,  // for the round that forms
  kRunning,      // its workers do
  kSucceeded,    // its workers have succeeded, others still run
  kStopping,     // its workers are being stopped
  kStopped,
  kSpare,  // waits for the next round or a lost node's place
  kAway,   // its connection ended; lost when its lease expires
};

struct NodeStatus {
  NodeId node_id;
  std::string host;
  std::string address;           // where the other nodes reach its workers
  std::optional<int> node_rank;  // asked for or given
  NodeState state = NodeState::kWaiting;
  // Ranks of its workers: `ranks` of them from `rank_first`. None where it has no part in the
  // round.
  int rank_first = 0;
  int ranks = 0;
  // Since its last message or, if it is away, since its connection ended.
  std::chrono::milliseconds silent{0};
  // Its workers' progress in this round, if they report any, and the time since it last changed.
  std::optional<Progress> progress;
  std::chrono::milliseconds progress_age{0};
  std::vector<RoleWorkers> roles;  // of its ranks, in their order; none: it has one program
  std::string topology;            // its place in the network; empty: ranks do not depend on it
  // Of its workers, by local rank, where they were asked for and report any.
  std::vector<RankReport> rank_reports{};
  bool operator==(const NodeStatus&) const = default;
};

// A host whose nodes may not join.
struct LeftOutStatus {
  std::string host;
  int failures = 0;
  std::chrono::milliseconds remaining{0};  // 0: as long as the run lives
  bool operator==(const LeftOutStatus&) const = default;
};

struct RunStatus {
  std::string run_id;
  RunPhase phase = RunPhase::kForming;
  RoundId round = kNoRound;
  std::string reason;                      // what the run waits for; empty: nothing
  std::chrono::milliseconds remaining{0};  // until the wait times out; 0: never
  int nodes_min = 0;
  int nodes_max = 0;
  int world_size = 0;  // of the round, once sealed
  int restarts_used = 0;
  int restarts_max = 0;
  int restarts_forgiven = 0;            // of those used: they no longer count
  std::optional<Failure> last_failure;  // the cause of the last round that broke
  std::optional<Verdict> verdict;       // once closed
  int node_count = 0;                   // spares too
  std::vector<NodeStatus> nodes;        // the first of them, by rank; spares last
  std::vector<LeftOutStatus> left_out;  // the first of them, by name
  // Progress of all its nodes together, if they report any, and the time since the last report.
  std::optional<Progress> progress;
  std::chrono::milliseconds progress_age{0};
  RankTime time{};                       // of all ranks in all rounds so far
  std::optional<Preemption> preemption;  // the notice that stands
  // Where ranks are that have not moved for kStillTime; empty: none of them waits for others.
  std::vector<RanksInPlace> still;
  RankOrder rank_order = RankOrder::kJoin;
  std::optional<double> loss{};  // mean over the ranks that report one; infinite: one is not finite
  bool operator==(const RunStatus&) const = default;
};

// A node's last report about its workers, and when it came.
struct ReportedProgress {
  RoundId round = kNoRound;
  Progress progress;
  TimePoint reported{};
  std::vector<RankReport> ranks{};
};
using ReportedProgresses = std::map<NodeId, ReportedProgress>;

// Takes what the node on that link reports, and forgets nodes that are no longer members.
void TakeProgress(const RunState& state, LinkId link, const Heartbeat& heartbeat, TimePoint now,
                  ReportedProgresses& reported);

// Summarizes several workers or nodes: the progress of the one that is furthest behind, and the sum
// of the rates that have one unit.
Progress Summarize(const std::vector<const Progress*>& all);

// Without the last lines of workers' output, which are for the nodes of the run.
// At most so many nodes, and reports of single ranks.
RunStatus StatusOf(const RunState& state, TimePoint now, std::size_t nodes_max,
                   const ReportedProgresses& reported = {}, std::size_t ranks_max = 0);

}  // namespace ddprun
