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
#include "rendezvous/client/session_client.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

struct SupervisorConfig {
  std::string host;     // for people
  std::string service;  // "A:29500"; empty: inside this process, for this node alone
  bool hosts_service = false;
  std::chrono::milliseconds join_timeout{0};
  std::chrono::milliseconds shutdown_timeout{0};  // from SIGTERM to SIGKILL at the run's end
  std::chrono::milliseconds restart_timeout{0};   // the same before another round
};

enum class Phase {
  kWaiting,    // in no round: connecting, or waiting for the other nodes
  kRunning,    // workers run, none has failed
  kExamining,  // the service stops the round because a worker hangs: the stacks of this node's
               // workers are read before their signal
  kSucceeded,  // all workers of the round ended with 0: waiting for the others
  kStopping,   // a worker or another node failed: workers are being stopped, or are and the next
               // word is awaited
  kLeaving,    // this agent must end: workers are being stopped, then the verdict is awaited
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
  // It was well when this agent sent it a signal: not a cause of anything.
  bool stopped = false;
  std::string traceback;
  std::optional<OomKill> oom;
  std::string core_file;
  std::vector<RanksInPlace> places;  // where this node's workers wait, if they do
};

// A worker is alive and makes no progress; its stacks have been read.
struct WorkerHung {
  int local_rank = 0;
  std::int64_t pid = 0;
  std::chrono::milliseconds age{0};
  Hang hang;
  std::vector<std::string> last_lines;
  std::vector<RanksInPlace> places;  // as of WorkerEnded
};

// All that ExamineWorkers asked for has been read; WorkerHung comes before it.
struct StacksRead {};

// The last worker of the round ended, and what the workers left behind is gone too.
struct AllGone {};

struct SignalReceived {
  int signal = 0;
};

// The warden was killed: somebody wants this run off the machine.
struct WardenLost {};

// The head of the run that started this node is gone.
struct ControlPipeLost {};

struct DeadlinePassed {};

using Event = std::variant<Connecting, Reconnecting, Reconnected, Accepted, Waiting, Start, Stop,
                           Finish, Refused, SessionEnded, WorkerEnded, WorkerHung, StacksRead,
                           AllGone, SignalReceived, WardenLost, ControlPipeLost, DeadlinePassed>;

// ---- Effects

struct SpawnRound {
  Start start;
};
// Read the stacks of this node's workers, then report StacksRead. `silent`: for how long the hung
// worker, on whatever node, has made no progress.
struct ExamineWorkers {
  std::chrono::milliseconds silent{0};
};
struct TerminateWorkers {  // `signal` to every worker's process group
  int signal = SIGTERM;
};
struct KillWorkers {};  // SIGKILL to the same
struct KillWorker {     // SIGKILL to one of them: it hangs and would not react to SIGTERM
  int local_rank = 0;
};
struct SendReport {
  Report report;
};
// Send NodeStopped; the agent adds a free port.
struct ReportStopped {
  RoundId round = kNoRound;
  std::vector<WorkerEnds> ends;
};
struct ReportStuck {};  // name the workers that SIGKILL did not end
struct PrintNote {
  std::string text;  // one sentence, without "ddprun: "
};
// The last effect. `text` is shown as it is, if there is any.
struct End {
  int exit_code = 0;
  std::string text;
  std::optional<Verdict> verdict;  // absent: the run's end is not known here
};

using Effect = std::variant<SpawnRound, ExamineWorkers, TerminateWorkers, KillWorkers, KillWorker,
                            SendReport, ReportStopped, ReportStuck, PrintNote, End>;
using Effects = std::vector<Effect>;

// ---- State

struct SupervisorState {
  Phase phase = Phase::kWaiting;
  std::optional<Start> round;  // the last one started here
  bool workers_live = false;   // from SpawnRound to AllGone

  // The first of this node's workers that failed by itself in this round, as first_cause.h has it.
  std::optional<Failure> failure;
  std::vector<WorkerEnds> ends;  // of this round's workers, one by one in their order of ending
  std::optional<Failure> stop_cause;          // why the last round broke, as the service sees it
  bool stop_asked = false;                    // Stop came and is not answered yet
  std::optional<Stop> deferred_stop;          // kExamining: carried out once the stacks are read,
  std::optional<TimePoint> examine_deadline;  // or then
  std::optional<int> signal;                  // that ended this agent's part
  TimePoint signal_time;
  std::optional<End> end;  // decided, once the workers are gone

  // Whether another round follows the one that is being stopped; absent: not known yet.
  std::optional<bool> another_round;
  int term_signal = 0;                        // what the workers were asked to end with
  TimePoint term_time;                        // of its sending
  std::optional<TimePoint> kill_deadline;     // they were asked to end: SIGKILL then
  std::optional<TimePoint> give_up_deadline;  // SIGKILL was sent: nothing more can be done then
  std::optional<TimePoint> leave_deadline;    // no verdict by then: end without it

  bool hurried = false;  // the control pipe is lost: nothing is waited for long

  bool joined = false;  // the service has answered: it knows of this node

  std::string waiting_reason;                // what is waited for
  std::optional<TimePoint> waiting_until;    // the service or the client gives up then
  std::optional<TimePoint> notice_deadline;  // show the reason then
  bool notice_shown = false;                 // the person knows that we wait: show changes at once
};

Effects Step(SupervisorState& state, const Event& event, TimePoint now,
             const SupervisorConfig& config);

// A user asked for SIGKILL at once.
bool WantsKill(const Stop& stop);

// When Step() wants a DeadlinePassed at the latest.
std::optional<TimePoint> NextDeadline(const SupervisorState& state);

}  // namespace ddprun
