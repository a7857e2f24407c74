// SPDX-License-Identifier: Apache-2.0
// The members of a run and its rounds: a pure function of state, event and time. It has no I/O,
// clock, lock, log or randomness, so a lost node or a late report is a line in a unit test.
// RULES.md has the diagram.
//
// The nodes of a run agree on the numbers of nodes and on the restarts; the first to join sets
// them, the lease and the join window. A round forms until its places are taken (or the window has
// ended with at least the minimum number of nodes), is sealed (every node with a place receives its
// ranks and starts its workers), and ends when all nodes succeeded or with the first failure. Then
// every node stops its workers, and either the next round forms with the nodes that are still
// connected, or the run is closed with one verdict for all.
//
// A node is a member from its join until it leaves, is replaced, or has been silent for a lease.
// Its stream may break and be replaced by another; the member is away in between. Members beyond
// the places are spares and take the places of lost ones when the next round forms.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/membership/restart_policy.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// One Session stream. Chosen by the caller and never used twice in a run: a node that reconnects
// has another.
enum class LinkId : std::uint64_t {};

enum class RunPhase { kForming = 1, kSealed, kBroken, kClosed };

// How far a node is with the round.
enum class MemberPhase {
  kWaiting = 1,  // for the round to be sealed; in a sealed or broken one: for the next one
  kRunning,      // was sent Start
  kSucceeded,    // all its workers ended well
  kStopping,     // was sent Stop and has not answered
  kStopped,
};

// The machine of a member will be taken away.
struct MemberNotice {
  TimePoint until{};
  std::chrono::milliseconds given{0};  // the time that was left when it came
  std::string reason;
};

struct Member {
  Join join;
  std::uint64_t order = 0;       // of joining, over the run
  std::optional<int> node_rank;  // asked for, or given when first sealed; kept over rounds
  bool seated = false;           // has had a place in a sealed round: precedes those that have not
  int rank_first = 0;            // in the round that it runs
  int role_rank_first = 0;       // the same among the workers of its role
  int role_world_size = 0;
  std::vector<RoleRanks> roles;  // of Join::roles
  // It leaves when its round ends: "ddpctl from HOST", or why the run drains it; empty: it stays.
  std::string drained_by;
  // It has sent Leave, and its workers have not ended yet. A node that hosts the service stays a
  // member until the run is closed, so that it is the last to go.
  std::optional<Failure> leaving;
  // In the round: all its workers can be kept. In no round: its parked workers are ready.
  bool can_be_kept = false;
  bool prepares = false;  // was sent StandBy on this link
  MemberPhase phase = MemberPhase::kWaiting;
  std::optional<LinkId> link;    // absent: away
  TimePoint last_seen{};         // its last message, or the end of its stream
  std::uint64_t words_told = 0;  // the last of RunState::words_version that was sent
  RankTime time{};               // of its workers, as it has reported it, and when
  TimePoint time_at{};
  std::int64_t slow_rank = -1;  // of its ranks in this round, as it has reported it; -1: none
  // How often the memory of its ranks was found to be damaged; and as its workers of now count it.
  std::int64_t damages = 0;
  std::int64_t damages_reported = 0;
  std::vector<RanksInPlace> still;  // of its ranks in this round, as it has reported it
  std::optional<MemberNotice> notice;
  std::uint64_t saved_for = 0;  // the last notice of the run for which all its workers have saved
};

// A machine of the run will be taken away: what all nodes were told (values/preemption.h).
struct PreemptionNotice {
  std::uint64_t number = 0;
  TimePoint until{};
  NodeId node_id;  // a member: with it the notice ends
  std::string reason;
};

// The service itself did not run (SIGSTOP, a suspended machine): its looks at the leases were late.
struct Suspension {
  TimePoint end{};
  std::chrono::milliseconds length{0};  // at least
};

// Where a host was when a node of it last joined.
struct KnownHost {
  std::string address;                 // Join's
  std::vector<std::string> addresses;  // likewise
  bool operator==(const KnownHost&) const = default;
};

struct RunState {
  std::string run_id;
  bool durable = false;  // told to the nodes
  RunPhase phase = RunPhase::kForming;
  RoundId round{1};       // the one that forms, runs or broke
  int restart_count = 0;  // all, whether they count against the budget or not
  RestartHistory restarts;
  // The first node's join: all nodes must agree with its numbers of nodes, restarts and restart
  // policy; its join timeout, last call and lease apply to all. Absent until a node was accepted.
  std::optional<Join> rules;
  std::map<NodeId, Member> members;
  std::map<LinkId, NodeId> links;  // of the members that are not away
  std::map<int, NodeId> places;    // by node rank: the node that asked for it or was given it
  std::map<int, NodeId> asked;     // by node rank: the node that asked for it, whatever it got
  std::map<std::string, KnownHost> hosts;  // by its name in the run (HostNameInRun())
  std::uint64_t joins = 0;
  int waiting = 0;                       // members that are kWaiting
  int running = 0;                       // kRunning
  int stopping = 0;                      // kStopping
  int leaving = 0;                       // members that have sent Leave
  int kept = 0;                          // members of the round whose workers can be kept
  std::optional<Failure> cause;          // why the round broke; kept while the next one forms
  std::optional<Failure> last_cause;     // of the last round that broke; kept while others run
  TimePoint broke{};                     // when
  bool was_kept = false;                 // the workers that it had left could all be kept
  std::vector<WorkerOutcomes> outcomes;  // how its workers ended, as far as nodes have reported
  TimePoint sealed{};                    // when the last round was sealed
  std::string left_out;                  // the host left out after the last round, as a sentence
  bool may_restart = true;  // false once a node left that the run cannot continue without
  TimePoint deadline{};     // forming: of joining; broken: of stopping
  std::optional<TimePoint> last_call_due;  // forming with enough nodes: sealed then
  std::optional<TimePoint> restart_due;    // forming: not sealed before
  std::optional<TimePoint> lease_due;      // the next look; no member's lease is over before
  std::optional<Suspension> suspension;    // the last one
  std::optional<Start> start;              // of the last sealed round; rank 0's
  std::optional<Verdict> verdict;          // once closed, unless the last node left before that

  // The status sentence for waiting nodes.
  std::string words;
  std::uint64_t words_version = 0;
  std::optional<TimePoint> words_due;  // when a changed sentence that was held back is sent
  std::optional<TimePoint> words_sent;

  RankTime time_gone{};  // of nodes that are no longer members

  // In which most ranks of the round wait and do not move, and when people are told of it; that
  // is absent once they were.
  std::optional<Collective> stalled_in;
  std::optional<TimePoint> stall_due;
  std::optional<TimePoint> stall_look_due;  // a member's places have changed
  // When people are told of the members that still run, while others have succeeded.
  std::optional<TimePoint> late_due;

  // The last notice; it stands for its time.
  std::optional<PreemptionNotice> preemption;
  // When the members with a notice are drained, though some workers have not saved.
  std::optional<TimePoint> drain_due;
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
// The stream ended. The node is away, and lost when its lease expires.
struct NodeGone {
  LinkId link;
};
// The node's agent is known to be dead, so its lease is not waited for. No effect if the node is no
// member.
struct NodeLost {
  NodeId node_id;
  std::string reason;  // continues "node b was lost: "
};
// An operator ends the run. No effect on a closed run.
struct RunStopped {
  std::string by;    // a host
  bool now = false;  // without a grace period for the workers
};
// An operator drains a member, which PlanDrain() (operator_rules.h) has found possible. Its round
// ends for all, and the next one has no place for it; no restart is used.
struct NodeDrained {
  NodeId node_id;
  std::string by;
  bool at_next_round = false;  // the current round is not ended for it
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
// After everything sent before. The link is not used again.
struct EndStream {
  LinkId link;
};
// The store is emptied and belongs to this round from now on.
struct RoundChanged {
  RoundId round;
};

// For watchers, logs and metrics: nothing depends on it.
enum class NoticeKind {
  kNodeJoined,
  kNodeReturned,  // with another stream
  kNodeAway,      // its stream ended
  kNodeLost,      // `why`
  kNodeLeft,      // `why`
  kNodeDrained,   // `why`
  kNodeRefused,   // `words`
  kNodeNotice,    // its machine will be taken away; `words`
  kNodeSucceeded,
  kRoundStarted,
  kRoundBroken,  // `why`
  kRestart,      // the next round forms
  kRankSlow,     // `words`
  kRankNormal,   // a slow one is no longer; `words`
  kRankDamaged,  // `words`
  kRanksWait,    // for others, or the others for them, for long; `words`
  kFault,        // was injected on purpose; `words`
  kRunFinished,  // `why`, unless it is a success
};
struct RunNotice {
  NoticeKind kind = NoticeKind::kNodeJoined;
  RoundId round = kNoRound;
  // Set in notes about a node.
  NodeId node_id;
  std::string host;
  std::optional<int> node_rank;
  std::optional<int> rank;  // kRankSlow, kRankNormal, kRankDamaged, kFault
  std::optional<Failure> why;
  std::string words;
  int exit_code = 0;  // kRunFinished
  // The round that has started or finished: kRoundStarted and kRunFinished.
  int node_count = 0;
  int world_size = 0;
  int restart_count = 0;
};

using MembershipEffect = std::variant<SendDirective, EndStream, RoundChanged, RunNotice>;

RunState MakeRun(std::string run_id, bool durable = false);

// Events of links without a member (refused, gone, unknown) have no effect.
std::vector<MembershipEffect> Step(RunState& state, const MembershipEvent& event, TimePoint now);

// The time of all ranks in all rounds so far, as far as nodes have reported it.
RankTime TimeOf(const RunState& state);

// Where the round's ranks are that have not moved for long. Empty: none of them waits for others.
std::vector<RanksInPlace> StillIn(const RunState& state);

// The notice that stands, with the time left; absent: none does.
std::optional<Preemption> PreemptionOf(const RunState& state, TimePoint now);

// Rebuilds what follows from the members: links, places, requested ranks and the counts.
void Reindex(RunState& state);

// When Step() needs a Tick; absent: never.
std::optional<TimePoint> NextDeadline(const RunState& state);

// The run will not start another round, but nodes have yet to receive their verdict.
bool IsEnding(const RunState& state);

// The run can be forgotten; a node that joins under its name begins a new one.
bool IsDrained(const RunState& state);

}  // namespace ddprun
