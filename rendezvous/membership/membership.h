// SPDX-License-Identifier: Apache-2.0
// Who is in a run, and which round it is in: a pure function of state, event and time. No I/O,
// clock, lock, log or randomness inside, so that a lost node or a late report is a line in a unit
// test. RULES.md has the diagram.
//
// The nodes of a run agree on the numbers of nodes and on the restarts; the first to join sets
// them, and the lease and the join window. A round forms until its places are taken (or the window
// is over with at least the least number of nodes), is sealed (every node that has a place is told
// its ranks and starts its workers), and ends when all nodes succeeded or with the first failure.
// Then every node stops its workers, and either the next round forms with the nodes that are still
// there, or the run is closed with one verdict for all.
//
// A node is a member from its join until it leaves, is replaced, or was not heard of for a lease.
// Its stream may break and another take its place meanwhile; the member is away in between. Members
// beyond the places are spares and take the places of lost ones when the next round forms.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/membership/restart_policy.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// One Session stream. Chosen by the caller, never used twice in a run: a node that comes back has
// another.
enum class LinkId : std::uint64_t {};

enum class RunPhase { kForming, kSealed, kBroken, kClosed };

// How far a node is with the round.
enum class MemberPhase {
  kWaiting,    // for the round to be sealed; in a sealed or broken one: for the next one
  kRunning,    // was sent Start
  kSucceeded,  // all its workers ended well
  kStopping,   // was sent Stop and has not answered
  kStopped,
};

struct Member {
  Join join;
  std::uint64_t order = 0;       // of joining, over the run
  std::optional<int> node_rank;  // asked for, or given when first sealed; kept over rounds
  bool seated = false;      // has had a place in a sealed round: goes before those that have not
  int rank_first = 0;       // in the round that it runs
  int role_rank_first = 0;  // the same among the workers of its role
  int role_world_size = 0;
  std::string drained_by;  // who asked it to leave when its round ends; empty: nobody did
  // It has sent Leave, and its workers have not ended yet. A node that hosts the service stays a
  // member until the run is closed, so that it is the last to go.
  std::optional<Failure> leaving;
  MemberPhase phase = MemberPhase::kWaiting;
  std::optional<LinkId> link;    // absent: away
  TimePoint last_seen{};         // its last message, or the end of its stream
  std::uint64_t words_told = 0;  // the last of RunState::words_version that was sent
};

// What all nodes must agree on (the first four), and what the first node's word decides.
struct RunRules {
  int nodes_min = 1;
  int nodes_max = 1;
  int restarts_max = 0;
  RestartPolicy restart_policy;
  std::chrono::milliseconds join_timeout{0};
  std::chrono::milliseconds last_call{0};
  std::chrono::milliseconds lease{0};  // 0: a stream's end is its node's end
  std::string set_by;                  // host
};

struct RunState {
  std::string run_id;
  bool durable = false;  // told to the nodes
  RunPhase phase = RunPhase::kForming;
  RoundId round{1};       // the one that forms, runs or broke
  int restart_count = 0;  // all, whether they count against the budget or not
  RestartHistory restarts;
  std::optional<RunRules> rules;  // absent until a node was accepted
  std::map<NodeId, Member> members;
  std::map<LinkId, NodeId> links;  // of the members that are not away
  std::map<int, NodeId> places;    // by node rank: who asked for it or was given it
  std::map<int, NodeId> asked;     // by node rank: who asked for it, whatever he was given
  std::uint64_t joins = 0;
  int waiting = 0;                       // how many members are kWaiting
  int running = 0;                       // how many are kRunning
  int stopping = 0;                      // how many are kStopping
  int leaving = 0;                       // how many have sent Leave
  std::optional<Failure> cause;          // why the round broke; kept while the next one forms
  std::optional<Failure> last_cause;     // of the last one that broke; kept while others run
  TimePoint broke{};                     // when
  std::vector<WorkerOutcomes> outcomes;  // how its workers ended, as far as their nodes have said
  TimePoint sealed{};                    // the last round that was
  std::string left_out;                  // who is, since the last round, in words
  bool may_restart = true;  // false once a node left without which the run cannot go on
  TimePoint deadline{};     // forming: of joining; broken: of stopping
  std::optional<TimePoint> last_call_due;  // forming, and enough nodes are here: sealed then
  std::optional<TimePoint> restart_due;    // forming: not sealed before
  std::optional<TimePoint> lease_due;      // no member's lease is over before
  std::optional<Start> start;              // of the last sealed round; rank 0's
  std::optional<Verdict> verdict;  // once closed, unless the last node went before there was one

  // What waiting nodes are told.
  std::string words;
  std::uint64_t words_version = 0;
  std::optional<TimePoint> words_due;  // changed words that were held back go out then
  std::optional<TimePoint> words_sent;
};

// ---- Events

// A stream's first report.
struct NodeJoined {
  LinkId link;
  Join join;
};
struct NodeReported {
  LinkId link;
  Report report;
};
// The stream ended, for whatever reason. The node is away, and lost when its lease is over.
struct NodeGone {
  LinkId link;
};
// Its agent is dead, as is known for certain: nothing is left to wait for. A node that is no member
// has no effect.
struct NodeLost {
  NodeId node_id;
  std::string reason;  // in words, after "node b was lost: "
};
// Somebody wants the run to end. In a closed run without effect.
struct RunStopped {
  std::string by;    // a host
  bool now = false;  // without a grace for the workers
};
// Somebody wants a member to leave, which PlanDrain() (operator_rules.h) has found possible. Its
// round ends for all, and the next one has no place for it; no restart is used.
struct NodeDrained {
  NodeId node_id;
  std::string by;
  bool at_next_round = false;  // the round is not ended for it
};
// NextDeadline() is reached.
struct Tick {};

using MembershipEvent =
    std::variant<NodeJoined, NodeReported, NodeGone, NodeLost, RunStopped, NodeDrained, Tick>;

// ---- Effects, to be performed in their order

struct SendDirective {
  LinkId link;
  Directive directive;
};
// After what was sent. The link is not named again.
struct EndStream {
  LinkId link;
};
// The store is emptied and belongs to this round from now on.
struct RoundChanged {
  RoundId round;
};

// For those who watch: nothing depends on it.
enum class NoticeKind {
  kNodeJoined,
  kNodeReturned,  // with another stream
  kNodeAway,      // its stream ended
  kNodeLost,      // `why`
  kNodeLeft,      // `why`
  kNodeDrained,   // `why`
  kNodeRefused,   // `words`
  kNodeSucceeded,
  kRoundStarted,
  kRoundBroken,  // `why`
  kRestart,      // the next round forms
  kRunFinished,  // `why`, unless it is a success
};
struct RunNotice {
  NoticeKind kind = NoticeKind::kNodeJoined;
  RoundId round = kNoRound;
  // Of notes about a node.
  NodeId node_id;
  std::string host;
  std::optional<int> node_rank;
  std::optional<Failure> why;
  std::string words;
  int exit_code = 0;  // kRunFinished
  // Of the round: kRoundStarted and kRunFinished.
  int node_count = 0;
  int world_size = 0;
  int restart_count = 0;
};

using MembershipEffect = std::variant<SendDirective, EndStream, RoundChanged, RunNotice>;

RunState MakeRun(std::string run_id, bool durable = false);

// Events of links that are not members (refused, gone, unknown) have no effect.
std::vector<MembershipEffect> Step(RunState& state, const MembershipEvent& event, TimePoint now);

// Finds anew what follows from the members: links, places, what was asked for and the counts.
void Reindex(RunState& state);

// When Step() wants a Tick, if ever.
std::optional<TimePoint> NextDeadline(const RunState& state);

// The run will not start another round, but nodes are still to be told or to take their verdict.
bool IsEnding(const RunState& state);

// Nothing is left of the run: it can be forgotten, and a node that joins under its name begins a
// new one.
bool IsDrained(const RunState& state);

// What must hold of every state, and between the states before and after one step. INTERNAL with a
// sentence.
absl::Status CheckInvariants(const RunState& before, const RunState& after);

}  // namespace ddprun
