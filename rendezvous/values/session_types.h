// SPDX-License-Identifier: Apache-2.0
// The messages between nodes and the rendezvous service as plain values: one struct for each
// message of proto/ddprun.proto, with the same meaning. The cores and the client use these; only
// wire/ knows the protobuf messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "proto/collective.h"
#include "proto/rank_time.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/round_id.h"
#include "rendezvous/values/connection_owner.h"
#include "rendezvous/values/preemption.h"
#include "rendezvous/values/progress.h"

namespace ddprun {

// One agent process.
struct NodeId {
  std::string value;
  auto operator<=>(const NodeId&) const = default;  // NOLINT(modernize-use-nullptr): generated
};

// The values of these enums are those of proto/ddprun.proto.
enum class FailureKind {
  kWorkerExited = 1,
  kWorkerSignaled = 2,
  kSpawnFailed = 3,
  kNodeLost = 4,
  kNodeInterrupted = 5,
  kJoinTimeout = 6,
  kWorkerHung = 7,        // it was alive and made no progress
  kCollectiveFailed = 8,  // it is alive, has left the round, and can be kept
  // It exited with code 0 while others waited for it in a collective; `exit_code` is that of the
  // failure that this caused.
  kWorkerEndedEarly = 9,
  kRunStopped = 20,   // an operator stopped the run; the workers get `signal`
  kNodeDrained = 21,  // an operator drained the node: no failure, but the end of its round
  kNodeJoined = 22,   // likewise: the next round has a place for it
};

// The sign of life that a hung worker did not give.
enum class HangKind {
  kNoProgress = 1,  // it has reported progress before
  kNoStart,         // it has never reported any
  kNoOutput,        // neither of its streams had a byte
};

// A worker that was alive and made no progress.
struct Hang {
  HangKind kind = HangKind::kNoProgress;
  std::chrono::milliseconds silent{0};
  std::int64_t step = -1;  // its current step; -1: not reported
  std::string section;
  std::int64_t others_step = -1;   // the furthest step of another worker that waits too
  std::vector<std::string> stack;  // of its threads, one frame a line: the first ones
  bool operator==(const Hang&) const = default;
};

// The kernel killed a worker because memory ran out. 0 bytes: not known.
struct OomKill {
  std::int64_t used_bytes = 0;
  std::int64_t limit_bytes = 0;  // of its cgroup, else of the machine
  bool of_cgroup = false;
  bool operator==(const OomKill&) const = default;
};

struct RankRange {
  int first = 0;
  int last = 0;
  bool operator==(const RankRange&) const = default;
};

// Ranks that are in the same place among the collectives (collectives.h).
struct RanksInPlace {
  std::vector<RankRange> ranks;  // sorted, apart
  CollectivePlace place;
  bool operator==(const RanksInPlace&) const = default;
};

// Why a round broke. Defaults mean "not one worker's failure" and "not known".
struct Failure {
  FailureKind kind = FailureKind::kWorkerExited;
  int rank = -1;
  int local_rank = -1;
  int node_rank = -1;
  std::string host;
  std::int64_t pid = 0;
  int exit_code = 0;
  int signal = 0;
  std::string message;
  std::vector<std::string> last_lines;
  std::chrono::milliseconds age{0};
  std::optional<OomKill> oom;        // of a SIGKILL
  std::string core_file;             // its path, or the command that shows it; empty: there is none
  std::string traceback;             // of Python, which ends with `message`
  std::optional<Hang> hang;          // of kWorkerHung
  std::vector<RanksInPlace> places;  // of the ranks that have reported where they wait
  std::string asked_by;              // of a worker that was ended on purpose: who asked for it
  std::string role;                  // of a node with several programs; empty: not said
  int role_rank = 0;                 // among the workers of that role
  std::string advice;                // the likely cause and what to do; empty: nothing is known
  bool operator==(const Failure&) const = default;
};

// The shell's rule: an exit code as it is, 128 + a signal's number, 1 for other failures.
int ToExitCode(const Failure& failure);

// The exit code of a failure within the range that a process can have: 1 to 255. exit() keeps the
// last eight bits of its argument, so 256 would mean success.
int ClampExitCode(int code);

// The name in the verdict's JSON and in metrics: "worker_exited".
const char* CodeName(FailureKind kind);

// One sentence without the last lines: "rank 3 (local rank 1 on host b, pid 4711) was killed by
// SIGKILL after 12.3 s".
std::string ToSentence(const Failure& failure);

// Exit codes from `first` to `last`. A signal is 128 + its number, as in ToExitCode().
struct ExitCodeRange {
  int first = 0;
  int last = 0;
  bool operator==(const ExitCodeRange&) const = default;
};

// What a node that joins a running round with a free place causes.
enum class OnJoin {
  kGrow = 0,     // a new round once its workers are ready, if all workers of the round can be kept
  kRestart = 1,  // a new round at once
  kStandby = 2,  // nothing: it waits for the next round
};

// The restart policy, apart from restarts_max: the same on all nodes of a run. restart_policy.h
// applies it.
struct RestartPolicy {
  std::chrono::milliseconds window{0};  // only restarts within it count; 0: all count
  std::chrono::milliseconds reset{0};   // a round that ran this long restores the budget; 0: never
  int no_progress_max = 0;              // rounds in a row that get no further; 0: any number
  std::vector<ExitCodeRange> never_codes;      // not worth a restart
  std::vector<ExitCodeRange> only_codes;       // if not empty: only these are worth a restart
  int node_failures_max = 0;                   // after so many a host is left out; 0: never
  std::chrono::milliseconds node_cooldown{0};  // for so long; 0: as long as the run lives
  std::chrono::milliseconds delay{0};          // before the next round
  std::chrono::milliseconds delay_max{0};      // it is doubled up to this; 0: never
  OnJoin on_join = OnJoin::kGrow;
  bool operator==(const RestartPolicy&) const = default;
};

// How a worker of a broken round ended. kStopped and kLost are not its own failures.
enum class EndKind { kExited = 1, kSignaled, kNotStarted, kLost, kStopped, kSucceeded };

// All workers of a round that ended in one way, except for the cause.
struct WorkerOutcomes {
  EndKind kind = EndKind::kStopped;
  int code = 0;  // of exit, or the signal
  int count = 0;
  std::vector<RankRange> ranges;   // sorted, apart; in a verdict the first few
  std::vector<std::string> hosts;  // of kLost: the first few
  bool operator==(const WorkerOutcomes&) const = default;
};

struct Verdict {
  bool success = false;
  std::optional<Failure> cause;  // the first, as first_cause.h has it
  int exit_code = 0;
  RoundId round = kNoRound;
  int restart_count = 0;
  int restarts_max = 0;
  int world_size = 0;
  int node_count = 0;
  std::vector<WorkerOutcomes> outcomes;
  int restarts_forgiven = 0;  // of restart_count: those that no longer count
  std::string not_restarted;  // why there is no restart, where the numbers do not say it
  RankTime time{};            // of all ranks in all rounds
  bool operator==(const Verdict&) const = default;
};

// ---- Reports: node to service

// The order in which nodes get the ranks that no node has or asks for: that of their joins, of
// their host names with numbers as numbers, or of their places in the network and then their names.
enum class RankOrder { kJoin, kHost, kTopology };
// As the flag has it: "topology".
const char* RankOrderName(RankOrder order);

// The workers of a node that run one program, with consecutive local ranks.
struct RoleWorkers {
  std::string name;
  int workers = 0;
  int worker_port = 0;  // as in Join, for the role; 0: ranks are not counted by role
  bool operator==(const RoleWorkers&) const = default;
};

struct Join {
  unsigned protocol_version = 0;
  std::string software_version;
  std::string run_id;
  NodeId node_id;
  std::string host;
  std::optional<int> node_rank;
  int local_world_size = 1;
  int nodes_min = 1;
  int nodes_max = 1;
  int restarts_max = 0;
  std::string address;
  int worker_port = 0;
  std::chrono::milliseconds join_timeout{0};
  std::chrono::milliseconds last_call{0};
  std::chrono::milliseconds lease{0};
  bool resume = false;
  std::chrono::milliseconds stop_timeout{0};
  RestartPolicy restart_policy;
  bool hosts_service = false;          // the run cannot go on without this node
  std::string role;                    // its workers are also counted among those of the same role
  bool evict_stragglers = false;       // drain it if a rank of it is slow and a spare stands by
  std::vector<std::string> addresses;  // numeric, of all its interfaces: it is asked first about
                                       // connections from them (connection_owners.h)
  bool hears_preemption = false;       // it knows the directive Preemption
  std::vector<RoleWorkers> roles;      // in the order of local ranks; none: all workers have `role`
  bool ranks_by_role = false;          // RANK and WORLD_SIZE are counted in a role
  RankOrder rank_order = RankOrder::kJoin;
  std::string topology;  // of kTopology: its place in the network, as "s0.s1.n3"
  // W3C: the run's span, if this node sends the run's trace; empty: it sends none.
  std::string traceparent;
  bool operator==(const Join&) const = default;
};

// Sent when nothing else was sent for Accepted::heartbeat, and when the workers' progress has
// changed.
struct Heartbeat {
  RoundId progress_round = kNoRound;  // of `progress`; kNoRound: none is reported
  Progress progress;
  // Here and below: of the node's workers in all rounds so far.
  RankTime time{};
  // In progress_round: its ranks that have been at one place for kStillTime, or have ended there.
  std::vector<RanksInPlace> still{};
  // Of progress_round: its workers by local rank, if one has reported progress.
  std::vector<RankReport> ranks{};
  bool operator==(const Heartbeat&) const = default;
};

struct WorkerFailed {
  RoundId round = kNoRound;
  Failure failure;
  bool operator==(const WorkerFailed&) const = default;
};

// Sent when it changes.
struct CanBeKept {
  RoundId round = kNoRound;  // kNoRound: of the parked workers of a node in no round
  bool all = false;
  bool operator==(const CanBeKept&) const = default;
};

struct NodeSucceeded {
  RoundId round = kNoRound;
  RankTime time{};
  bool operator==(const NodeSucceeded&) const = default;
};

// Workers of a node with consecutive local ranks that ended alike.
struct WorkerEnds {
  EndKind kind = EndKind::kStopped;
  int code = 0;
  int first = 0;
  int count = 1;
  bool operator==(const WorkerEnds&) const = default;
};

struct NodeStopped {
  RoundId round = kNoRound;
  int worker_port = 0;
  std::vector<WorkerEnds> ends;
  RankTime time{};
  // Places of its ranks when the round broke.
  std::vector<RanksInPlace> places{};
  std::vector<int> role_ports{};  // as worker_port, of its roles
  bool operator==(const NodeStopped&) const = default;
};

// The node stops its workers by itself and then sends NodeStopped. The service answers with Finish.
struct Leave {
  Failure reason;
  bool close_run = false;
  bool at_once = false;  // do not wait for any workers to end
  bool operator==(const Leave&) const = default;
};

// One line of a worker's output, of any bytes.
struct LogLine {
  int rank = 0;
  std::uint64_t round = 0;
  bool is_stderr = false;
  std::string prefix;  // as on the node's own console
  std::string text;
  bool operator==(const LogLine&) const = default;
};

// Output of the node's workers, for one of LogWatches. Not for the membership core.
struct LogLines {
  std::uint64_t watch = 0;
  std::uint64_t number = 0;    // counts from 1 in a watch of the node
  std::uint64_t left_out = 0;  // lines before these
  std::vector<LogLine> lines;
  bool tail_end = false;  // the end of the past lines that the subscriber asked for
  bool operator==(const LogLines&) const = default;
};

// The reply to Fault. Not for the membership core.
struct FaultReport {
  std::uint64_t id = 0;
  bool done = false;
  std::string words;                 // what was done, or why it could not be
  std::int64_t step = -1;            // of the node's workers at that moment, as in Progress
  std::int64_t epoch = -1;           // likewise
  std::vector<std::string> stack{};  // of kStacks: the first lines
  bool operator==(const FaultReport&) const = default;
};

using Report =
    std::variant<Join, WorkerFailed, NodeSucceeded, NodeStopped, Leave, Heartbeat, LogLines,
                 CanBeKept, FaultReport, PreemptionReport, OwnerQueries, OwnerAnswers>;

// The round that a report belongs to; absent: to none.
std::optional<RoundId> RoundOf(const Report& report);

// Sent by a node's warden, not on the node's stream.
struct LossReport {
  unsigned protocol_version = 0;
  std::string run_id;
  NodeId node_id;
  std::string reason;
  bool operator==(const LossReport&) const = default;
};

// ---- Directives: service to node

// The node is in the run, or is in it again: the first directive of its stream.
struct Accepted {
  std::chrono::milliseconds lease{
      0};  // a silent node is lost after this long; 0: when its stream ends
  std::chrono::milliseconds heartbeat{0};  // the longest the node may be silent; 0: no limit
  bool durable = false;           // the service has a journal: it comes back and knows the run
  bool takes_preemption = false;  // it knows PreemptionReport
  bool plans_preemption = false;  // and what is withdrawn or saved
  bool operator==(const Accepted&) const = default;
};

struct Waiting {
  std::string reason;
  std::chrono::milliseconds remaining{0};
  bool operator==(const Waiting&) const = default;
};

// The node is in no round, and is to park workers for the next one.
struct StandBy {
  bool operator==(const StandBy&) const = default;
};

// What the workers of one role have in a round, on one node.
struct RoleRanks {
  int rank_first = 0;  // of the node's first worker, among those of the role
  int world_size = 1;
  int node_rank = 0;  // among the nodes that have the role
  int node_count = 1;
  std::string master_addr;  // of the first of these nodes
  int master_port = 0;
  bool operator==(const RoleRanks&) const = default;
};

struct Start {
  RoundId round = kNoRound;
  std::string run_id;
  int node_rank = 0;
  int node_count = 1;
  int rank_first = 0;
  int world_size = 1;
  std::string master_addr;
  int master_port = 0;
  int restart_count = 0;
  int restarts_max = 0;
  int restarts_forgiven = 0;     // of restart_count: those that no longer count
  std::string left_out;          // which hosts are, since the last round, as a sentence
  int role_rank_first = 0;       // as rank_first, among the workers of the node's role
  int role_world_size = 1;       // of that role
  std::vector<RoleRanks> roles;  // of Join::roles
  std::string traceparent;       // Join's, of the node that hosts the service, else of node 0
  bool operator==(const Start&) const = default;
};

struct Stop {
  RoundId round = kNoRound;
  Failure cause;
  bool last = false;  // no round follows
  bool operator==(const Stop&) const = default;
};

struct Finish {
  Verdict verdict;
  bool operator==(const Finish&) const = default;
};

struct Refused {
  absl::Status status;
  int exit_code = 0;  // of the node's ddprun; 0: 1
  bool operator==(const Refused&) const = default;
};

// A subscription to the output of the node's workers.
struct LogWatch {
  std::uint64_t id = 0;
  int lines = 0;                 // past lines of each worker
  bool follow = false;           // and new lines as they come
  std::vector<RankRange> ranks;  // none: all
  bool without_stdout = false;
  bool without_stderr = false;
  // The node's stream is not the one that the subscription began on; the service has the LogLines
  // up to this number.
  bool resumed = false;
  std::uint64_t received = 0;
  bool operator==(const LogWatch&) const = default;
};

// All subscriptions. One that is no longer listed has ended.
struct LogWatches {
  std::vector<LogWatch> watches;
  bool operator==(const LogWatches&) const = default;
};

struct LogsTaken {
  std::uint64_t watch = 0;
  std::uint64_t number = 0;  // of LogLines; and all before
  bool operator==(const LogsTaken&) const = default;
};

// A fault that is injected on purpose. launcher/chaos/fault_table.h says what each kind does.
enum class FaultKind {
  kKill = 1,
  kSegv,
  kTerm,
  kStop,
  kSlow,
  kDisk,
  kFiles,
  kSession,
  kCut,
  kSlowNet,
  kAgent,
  kService,
  kUndo,
  kStacks,  // no fault: an operator asks for the stacks of a worker
};

// Carry out this fault now. It is sent once, and lost with the stream.
struct Fault {
  std::uint64_t id = 0;
  FaultKind kind = FaultKind::kUndo;
  int local_rank = -1;
  std::chrono::milliseconds duration{0};  // 0: that of the kind
  std::string by;                         // who asked for it
  bool operator==(const Fault&) const = default;
};

using Directive =
    std::variant<Accepted, Waiting, StandBy, Start, Stop, Finish, Refused, LogWatches, LogsTaken,
                 Fault, Preemption, OwnerQueries, OwnerAnswers, ConnectionRefused>;

}  // namespace ddprun
