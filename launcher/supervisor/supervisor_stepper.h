// SPDX-License-Identifier: Apache-2.0
// One call of Step(): the state, the event's time, and the effects so far. Internal to
// supervisor.cc (events), supervisor_stopping.cc (how workers are stopped and how the agent ends)
// and supervisor_notices.cc.
#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/supervisor/supervisor.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// A method for each event; each switches over every phase in the order of the diagram, without a
// default, so that the compiler finds a new phase that is not handled.
class Stepper {
 public:
  Stepper(SupervisorState& state, TimePoint now, const SupervisorConfig& config)
      : s_(state), now_(now), config_(config) {}

  Effects Take() { return std::move(effects_); }

  void operator()(const Connecting& event);
  void operator()(const Reconnecting& event);
  void operator()(const Reconnected&);
  void operator()(const Accepted& accepted);
  void operator()(const Waiting& event);
  void operator()(const StandBy&);
  void operator()(const Start& start);
  void operator()(const Stop& stop);
  void operator()(const Finish& finish);
  void operator()(const Refused& refused);
  void operator()(const SessionEnded& ended);
  void operator()(const WorkerEnded& ended);
  void operator()(const WorkerHung& hung);
  void operator()(const WorkerLeft& left);
  void operator()(const WorkersCanBeKept& event);
  void operator()(const StacksRead&);
  void operator()(const LeftBehind& left);
  void operator()(const AllGone& gone);
  void operator()(const SignalReceived& event);
  void operator()(const NoticeGiven& given);
  void operator()(const NoticeWithdrawn& withdrawn);
  void operator()(const WorkersSaved& saved);
  void operator()(const Preemption& preemption);
  void operator()(const HealthChecked& checked);
  void operator()(const WardenLost&);
  void operator()(const ControlPipeLost&);
  void operator()(const DeadlinePassed&);

 private:
  RoundId RoundNow() const { return s_.round.has_value() ? s_.round->round : kNoRound; }
  bool IsOver(const std::optional<TimePoint>& deadline) const {
    return deadline.has_value() && *deadline <= now_;
  }
  bool IsEcho() const;
  // Of a node that leaves.
  int SignalExitCode() const { return s_.signal.has_value() ? ExitCodeOfSignal(*s_.signal) : 1; }

  // ---- Starting and waiting

  void BeginRound(const Start& start);
  void NoteWaiting(const std::string& reason, std::chrono::milliseconds remaining);
  void ShowWaiting();

  void SendNotice();
  void SendSaved();

  // ---- Failures

  // Reports it, and stops the workers of the round.
  void Fail(Failure failure);
  void ReportEarlyEnd(const Failure& cause);

  // ---- Stopping the workers

  void HandleStopWhileExamining(const Stop& stop);
  void BeginStop(const Stop& stop);
  void StopWorkers(const Stop& stop);
  // `another_round`: whether one follows, which decides how long the workers have; absent: not
  // known yet. A repeated call moves the deadline, counted from the first signal.
  void Terminate(std::optional<bool> another_round, int signal = SIGTERM);
  // `keep`: those that have left the round stay.
  void Kill(bool keep = false);
  // Kept workers are stopped like those of a round.
  void TakeKeptBack();
  bool AnyLive() const { return s_.workers_live || s_.kept_live; }
  std::chrono::milliseconds Grace() const;
  void AnswerStop();
  void EndHealthCheck(const HealthChecked& checked);
  void NoteHealth(const HealthChecked& checked);
  void ReportEnds();

  // ---- Leaving the run

  // `signal`: why this agent ends; `to_workers`: the signal for the workers.
  void LeaveRun(int signal, int to_workers, bool at_once = false);
  void LeaveUnhealthy(const std::string& reason);
  void SendLeave(bool at_once);
  void AwaitVerdict();
  void NoteSignal(int signal);
  void EndAsLeft(Verdict verdict);

  // ---- The end

  void StopAndEnd(int exit_code, std::string text, std::optional<Verdict> verdict = std::nullopt);
  void EndAsInterrupted();
  void EndNow();
  void GiveUp();
  Verdict LocalVerdict() const;

  SupervisorState& s_;
  const TimePoint now_;
  const SupervisorConfig& config_;
  Effects effects_;
};

// ---- The sentences for users (supervisor_texts.cc)

std::string InSeconds(std::chrono::milliseconds time);  // "5 s", rounded up
std::string ServiceName(const SupervisorConfig& config);

// Printed at the end, with the exit code.
// `places`: where its ranks waited, if they did.
std::string InterruptedText(const std::string& host, int signal,
                            const std::vector<RanksInPlace>& places = {});
std::string LeftText(const Failure& reason, int exit_code);
std::string UnreachedText(const SessionEnded& ended);
std::string LostServiceText(const SessionEnded& ended, const SupervisorConfig& config,
                            bool workers_succeeded);
std::string RoundsOverlapText(const Start& start, RoundId current, const SupervisorConfig& config);

// Notes during the run.
std::string RestartText(const Start& start, const std::optional<Failure>& cause);
std::string LeftBehindText(const LeftBehind& left);
std::string NewRoundText(const Start& start, const Failure& cause);
std::string ConnectionLostText(const Reconnecting& event, const SupervisorConfig& config,
                               bool workers_live);

}  // namespace ddprun
