// SPDX-License-Identifier: Apache-2.0
// What must hold in every simulated run, whatever goes wrong: watches everything from above, with a
// memory of its own, and says in one sentence what is not so. It knows what no process knows: which
// workers live where, and what every node was told.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rendezvous/membership/membership.h"
#include "tests/simulation/restart_invariants.h"
#include "tests/simulation/store_invariants.h"

namespace ddprun {

// One run in the service, over the service's restarts. A new run of the same name has another.
using SimRunNumber = std::uint64_t;

// What a simulated worker says whose collective has lost a peer, as Gloo's do.
inline constexpr absl::string_view kBrokenCollectiveWords =
    "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer";

// As scenarios have it.
std::string Name(RunPhase phase);

struct SimStep {
  SimRunNumber run = 0;
  const RunState& before;
  const MembershipEvent& event;
  const std::vector<MembershipEffect>& effects;
  const RunState& after;
  TimePoint now;  // of the journal's clock
};

class Invariants {
 public:
  // ---- What happens

  void Stepped(const SimStep& step);
  // A node is being told: what it is told must be safe by now.
  void OnDirective(SimRunNumber run, const NodeId& node, const Directive& directive);
  // The service is there again, with these runs and no other.
  void Recovered(const std::map<SimRunNumber, const RunState*>& runs);
  void WorkersStarted(const NodeId& node, const Start& start);
  void WorkersGone(const NodeId& node);
  // Workers that could have been kept were told to end, and a round follows.
  void KeptWorkersWereStopped(const NodeId& node, const Start& start);
  // A worker of the node asks the store, is answered, and has met the others of its round.
  StoreInvariants::Asked Asked(const NodeId& node, const StoreOp& op);
  void Answered(const StoreInvariants::Asked& asked, const StoreResult& result);
  void Met(const NodeId& node, const Start& start);
  void Mutated(const StoreOp& op, RoundId of_run, RoundId of_store);
  // After a step, and after a replay.
  void StoreIsOf(RoundId of_run, RoundId of_store);
  // The world of that round, of workers of these nodes, has made a step together.
  void WorldMakesStep(SimRunNumber run, RoundId round, const std::set<NodeId>& nodes);
  void WrongTraining(absl::string_view invariant, absl::string_view sentence);
  // The faults are over, and so is the time in which all must end.
  void NotEnded(const std::string& who, const std::string& state);
  void Ended(const NodeId& node, const std::string& words);
  // Time does not pass any more.
  void Spins();
  void ReplayedOtherwise(SimRunNumber run);

  SimRunNumber RunOf(const NodeId& node) { return nodes_[node].run; }
  bool ok() const { return failure_.empty(); }
  // "name-of-the-invariant: sentence"; the first that did not hold.
  const std::string& failure() const { return failure_; }

 private:
  struct Node {
    SimRunNumber run = 0;
    std::optional<RoundId> lost_in;  // not a member any more since this round
    std::optional<RoundId> live;     // the round whose workers live there
    RoundId told{0};                 // the last round that it was told to start, safely
    bool told_accepted = false;
    TimePoint last_seen{};  // of its last word, by the journal's clock
  };
  struct Run {
    std::map<RoundId, std::map<NodeId, Start>> starts;
    std::optional<Verdict> told_verdict;
    // In the round that runs or stops: the first failure of each nature that was reported in time.
    std::optional<Failure> first_origin;
    std::optional<Failure> first_symptom;
    RunPhase phase = RunPhase::kForming;
    TimePoint phase_since{};
    RoundId stepped{0};  // the latest whose world has made a step
  };

  // One function for each, in the order of the README.
  void OneLiveRound(const NodeId& node, const Start& start);
  void RanksAreUniqueAndWithoutGap(const SimStep& step);
  void EveryNodeRunsWhatTheRoundSays(const SimStep& step);
  void WorkersRunWhatTheRoundSays(const NodeId& node, const Start& start);
  void NobodyWaitsForEver(const SimStep& step);
  void WhoWaitsIsToldWhy(const SimStep& step);
  void FencedNodesStayOut(const NodeId& node, const Start& start);
  void JoiningDisturbsNobody(const SimStep& step);
  void OnlyKeptRoundsGrow(const SimStep& step);
  void NobodyIsInHisOwnWay(const SimStep& step);
  void LeavingIsNotClosing(const SimStep& step);
  void SpareTakesThePlace(const SimStep& step);
  void OldRoundsMeanNothing(const SimStep& step);
  void FirstCauseIsTheCause(const SimStep& step);
  void VictimsAreNoCause(const SimStep& step);
  void OneVerdictForAll(const SimStep& step);
  void LosesOnlyWhoIsLost(const SimStep& step);
  void NoticesDrainWhoGoes(const SimStep& step);
  void TheHostLeavesLast(const SimStep& step);
  void TheVerdictIsKeptUntilItIsTaken(const SimStep& step);
  void MembersSpeakForThemselves(const SimStep& step);

  void Observe(const SimStep& step);
  void Note(const SimStep& step);
  void Fail(absl::string_view invariant, absl::string_view sentence);
  void Judge(const std::string& sentence);

  std::map<NodeId, Node> nodes_;
  std::map<SimRunNumber, Run> runs_;
  RestartInvariants restarts_;
  StoreInvariants store_;
  std::string failure_;
};

}  // namespace ddprun
