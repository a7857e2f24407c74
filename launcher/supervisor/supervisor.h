// SPDX-License-Identifier: Apache-2.0
// What one node's agent does when something happens: a pure function of state, event and time,
// without I/O, clock, lock or log. The agent feeds in the events and performs the effects in order.
// The diagram is in launcher/README.md.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/base/outcome.h"
#include "launcher/supervisor/likely_cause.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

struct SupervisorConfig {
  std::string host;     // for users
  std::string service;  // "A:29500"; empty: inside this process, for this node alone
  bool hosts_service = false;
  std::chrono::milliseconds join_timeout{0};
  std::chrono::milliseconds shutdown_timeout{0};  // from SIGTERM to SIGKILL at the run's end
  std::chrono::milliseconds restart_timeout{0};   // the same before another round
  bool checks_health = false;                     // CheckHealth has a command
};

enum class Phase {
  kWaiting,    // in no round: connecting, or waiting for the other nodes
  kRunning,    // workers run, none has failed
  kExamining,  // the service stops the round because a worker hangs: the stacks of this node's
               // workers are read before their signal
  kSucceeded,  // all workers of the round ended with 0: waiting for the other nodes
  kStopping,   // a worker or another node failed: workers are being stopped, or have ended and the
               // service's next directive is awaited
  kLeaving,    // this agent must end: workers are being stopped, then it waits for the verdict
  kEnding,     // the exit code is known, workers are being stopped
  kEnded,
};

// ---- Events

// One worker ended, or could not be started. `message` and `traceback` are its failure record, if
// it left one.
struct WorkerEnded {
  int local_rank = 0;
  Outcome outcome;
  std::int64_t pid = 0;
  std::chrono::milliseconds age{0};
  std::string message;
  std::vector<std::string> last_lines;
  // It had not failed when this agent sent it a signal: it is no cause.
  bool stopped = false;
  std::string traceback;
  std::optional<OomKill> oom;
  std::string core_file;
  // Where this node's workers wait, if any; of one that exited with code 0 where it was itself.
  std::vector<RanksInPlace> places;
  std::string asked_by;  // who asked for its end, by a fault; empty: nobody
  EndEvidence evidence;
};

// A worker is alive and makes no progress; its stacks have been read.
struct WorkerHung {
  int local_rank = 0;
  std::int64_t pid = 0;
  std::chrono::milliseconds age{0};
  Hang hang;
  std::vector<std::string> last_lines;
  std::vector<RanksInPlace> places;  // as in WorkerEnded
};

// A worker that can be kept has left the round by itself.
struct WorkerLeft {
  int local_rank = 0;
  std::int64_t pid = 0;
  std::chrono::milliseconds age{0};
  std::string error;  // of the collective that failed
  std::vector<std::string> last_lines;
  std::vector<RanksInPlace> places;  // as in WorkerEnded
};

// Whether all workers of the round can be kept has changed; or, without a round, all parked workers
// that the node needs are ready.
struct WorkersCanBeKept {
  bool all = false;
};

// All stacks that ExamineWorkers requested have been read. WorkerHung precedes it.
struct StacksRead {};

// All workers of the round ended with 0, and these processes that they left behind have not ended.
struct LeftBehind {
  int signal = 0;                          // that they get now: SIGTERM, SIGKILL, or 0 for none
  std::chrono::milliseconds remaining{0};  // until the next one
  std::vector<std::string> processes;      // "python3 upload.py (pid 12)"
};

// Each worker of the round has ended, with all processes that it left behind, or has left the round
// and is kept for the next one.
struct AllGone {
  bool kept = false;  // some are kept, or parked
};

struct SignalReceived {
  int signal = 0;
  int to_workers = signal;  // SIGTERM for one that is not in --signals-to-handle
};

// This machine will be taken away: a notice came (--preempt-notice, --notice-on-signal).
struct NoticeGiven {
  std::chrono::milliseconds remaining{0};
  std::string reason;  // as in PreemptionReport
  int exit_code = 0;   // of this agent, if its node is drained for it
};
// The same source says that the machine stays after all.
struct NoticeWithdrawn {
  std::string reason;  // of the notice
};
// All workers of the round have saved for the notice of this number.
struct WorkersSaved {
  std::uint64_t number = 0;
};

// The command of --health-check has ended: before this node joins, where it is repeated as long as
// there is time, or as CheckHealth requested.
struct HealthChecked {
  bool healthy = true;
  std::string reason;                      // "its health check exited with code 1: no GPU"
  std::chrono::milliseconds remaining{0};  // until the node gives up to join
};

// The warden was killed: the run must leave the machine.
struct WardenLost {};

// The head of the run, which started this node, has ended.
struct ControlPipeLost {};

struct DeadlinePassed {};

using Event = std::variant<Connecting, Reconnecting, Reconnected, Accepted, Waiting, StandBy, Start,
                           Stop, Finish, Refused, SessionEnded, WorkerEnded, WorkerHung, WorkerLeft,
                           WorkersCanBeKept, StacksRead, LeftBehind, AllGone, SignalReceived,
                           NoticeGiven, NoticeWithdrawn, WorkersSaved, Preemption, HealthChecked,
                           WardenLost, ControlPipeLost, DeadlinePassed>;

// ---- Effects

struct SpawnRound {
  Start start;
};
struct ParkWorkers {};  // as many as this node has ranks, for the next round
// Read the stacks of this node's workers, then report StacksRead. `silent`: for how long the hung
// worker, on whatever node, has made no progress.
struct ExamineWorkers {
  std::chrono::milliseconds silent{0};
};
struct TerminateWorkers {  // `signal` to every worker, or its process group (--signal-scope)
  int signal = SIGTERM;
  bool keep = false;  // those that can be kept are told that the round is broken instead
};
struct KillWorkers {  // SIGKILL to the same
  bool keep = false;  // but not to those that have left the round
};
struct KillWorker {  // SIGKILL to one worker, which hangs and would not react to SIGTERM
  int local_rank = 0;
};
// Tell the workers, those of this moment and those that start before it is over, that a machine of
// the run will be taken away; and a user.
struct TellNotice {
  Preemption preemption;
};
struct EndNotice {};  // it is over before its time: workers that start are not told of it
struct SendReport {
  Report report;
};
// Send NodeStopped; the agent adds a free port.
struct ReportStopped {
  RoundId round = kNoRound;
  std::vector<WorkerEnds> ends;
};
// Run the command of --health-check, then report HealthChecked.
struct CheckHealth {};
struct ReportStuck {};  // report the workers that SIGKILL did not end
struct PrintNote {
  std::string text;  // one sentence, without "ddprun: "
};
// The last effect. `text` is printed unchanged unless it is empty.
struct End {
  int exit_code = 0;
  std::string text;
  std::optional<Verdict> verdict;  // absent: the run's end is not known here
};

using Effect = std::variant<SpawnRound, ParkWorkers, ExamineWorkers, TerminateWorkers, KillWorkers,
                            KillWorker, TellNotice, EndNotice, SendReport, ReportStopped,
                            CheckHealth, ReportStuck, PrintNote, End>;
using Effects = std::vector<Effect>;

// ---- State

struct SupervisorState {
  Phase phase = Phase::kWaiting;
  std::optional<Start> round;  // the last one that was started on this node
  bool workers_live = false;   // from SpawnRound to AllGone
  bool kept_live = false;      // after AllGone: workers are kept for another round

  // The first of this node's workers that failed by itself in this round, as first_cause.h has it.
  std::optional<Failure> failure;
  std::vector<WorkerEnds> ends;        // of this round's workers, in order of ending
  std::vector<WorkerEnded> succeeded;  // of those: others may have waited for them
  std::optional<Failure> stop_cause;   // why the last round broke, as reported by the service
  bool stop_asked = false;             // Stop was received and is not answered yet
  std::optional<Stop> deferred_stop;   // kExamining: applied once the stacks are read,
  std::optional<TimePoint> examine_deadline;  // or at this time
  std::optional<int> signal;                  // that ended this agent's part of the run
  TimePoint signal_time;
  std::optional<End> end;  // performed once the workers have ended

  // Whether another round follows the one that is being stopped; absent: not known yet.
  std::optional<bool> another_round;
  int term_signal = 0;                     // the signal that was sent to the workers
  TimePoint term_time;                     // when it was sent
  bool term_keeps = false;                 // workers that can be kept did not get it
  std::optional<TimePoint> kill_deadline;  // SIGKILL is sent then
  std::optional<TimePoint>
      give_up_deadline;  // SIGKILL was sent: the agent ends without the workers then
  std::optional<TimePoint> leave_deadline;  // without a verdict by then, the agent ends

  bool hurried = false;  // the control pipe is lost: all waits are short

  bool joined = false;  // the service has answered and knows this node

  // This node's workers have stopped, and the service is told once it is known whether the node can
  // be in the next round.
  bool checking_health = false;
  std::string unhealthy;  // why it cannot, or cannot join; empty: it is healthy

  // Preemption. This node's own notice is reported until the service has answered.
  struct OwnNotice {
    TimePoint deadline;
    std::string reason;
    int exit_code = 0;
    bool withdrawn = false;
    bool answered = false;
  };
  std::optional<OwnNotice> own_notice;
  std::optional<bool> service_takes_notices;  // absent: it has not answered yet
  bool service_plans_notices = false;         // it knows which are withdrawn or saved for
  std::uint64_t notice_number = 0;            // of the last one that the service has told,
  std::uint64_t saved_number = 0;             // for which this node's workers have saved

  std::string waiting_reason;                // what is waited for
  std::optional<TimePoint> waiting_until;    // when the service or the client gives up
  std::optional<TimePoint> notice_deadline;  // when to show the reason
  bool notice_shown = false;                 // the reason has been shown: changes are shown at once
};

Effects Step(SupervisorState& state, const Event& event, TimePoint now,
             const SupervisorConfig& config);

// True if a user requested SIGKILL at once.
bool WantsKill(const Stop& stop);

// The latest time for the next DeadlinePassed.
std::optional<TimePoint> NextDeadline(const SupervisorState& state);

}  // namespace ddprun
