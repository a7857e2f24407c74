// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/supervisor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/supervisor/supervisor_stepper.h"
#include "launcher/supervisor/verdict.h"
#include "launcher/supervisor/worker_failure.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/membership/restart_policy.h"
#include "rendezvous/values/first_cause.h"

namespace ddprun {

// ---- The connection to the service

void Stepper::operator()(const Connecting& event) {
  NoteWaiting(absl::StrCat(ServiceName(config_), " is not reached yet: ", event.reason),
              event.remaining);
}

void Stepper::operator()(const Reconnecting& event) {
  if (s_.phase == Phase::kEnding || s_.phase == Phase::kEnded) return;
  effects_.push_back(PrintNote{ConnectionLostText(event, config_, s_.workers_live)});
}

void Stepper::operator()(const Reconnected&) {
  if (s_.phase == Phase::kEnding || s_.phase == Phase::kEnded) return;
  effects_.push_back(PrintNote{absl::StrCat("connected to ", ServiceName(config_), " again")});
}

void Stepper::operator()(const Waiting& event) {
  s_.joined = true;
  if (s_.phase == Phase::kRunning || s_.phase == Phase::kSucceeded)
    effects_.push_back(PrintNote{event.reason});
  NoteWaiting(event.reason, event.remaining);
}

// ---- Directives of the service

void Stepper::operator()(const StandBy&) {
  if (s_.phase != Phase::kWaiting) return;  // it crossed this node's Leave
  s_.kept_live = true;
  effects_.push_back(ParkWorkers{});
}

void Stepper::operator()(const Start& start) {
  s_.joined = true;
  // Repeated after the connection broke.
  if (s_.round.has_value() && start.round == RoundNow()) return;
  switch (s_.phase) {
    case Phase::kWaiting:
      return BeginRound(start);
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kSucceeded:
    case Phase::kStopping:
      return StopAndEnd(1, RoundsOverlapText(start, RoundNow(), config_));
    case Phase::kLeaving:  // it crossed this node's Leave
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

void Stepper::BeginRound(const Start& start) {
  if (s_.stop_cause.has_value() && !IsFailure(*s_.stop_cause)) {
    effects_.push_back(PrintNote{NewRoundText(start, *s_.stop_cause)});
  } else if (start.restart_count > 0 && s_.round.has_value()) {
    effects_.push_back(PrintNote{RestartText(start, s_.stop_cause)});
  }
  s_.round = start;
  s_.failure.reset();
  s_.ends.clear();
  s_.succeeded.clear();
  s_.stop_cause.reset();
  s_.waiting_reason.clear();
  s_.notice_deadline.reset();
  s_.notice_shown = false;
  s_.workers_live = true;
  s_.kept_live = false;
  s_.phase = Phase::kRunning;
  effects_.push_back(SpawnRound{start});
}

void Stepper::operator()(const Stop& stop) {
  s_.joined = true;
  switch (s_.phase) {
    case Phase::kWaiting:
      if (s_.round.has_value() && stop.round == RoundNow()) {
        s_.stop_cause = stop.cause;  // answered already: the service has determined a better cause
        return;
      }
      // A round that never started here has no worker to stop, but the service waits for the
      // answer.
      effects_.push_back(ReportStopped{stop.round, {}});
      return;
    case Phase::kRunning:
      if (stop.round != RoundNow()) return;
      if (stop.cause.kind != FailureKind::kWorkerHung || !stop.cause.hang) return BeginStop(stop);
      s_.deferred_stop = stop;
      s_.examine_deadline = now_ + kStopHeldMax;
      s_.phase = Phase::kExamining;
      effects_.push_back(ExamineWorkers{stop.cause.hang->silent});
      return;
    case Phase::kExamining:
      if (stop.round == RoundNow()) HandleStopWhileExamining(stop);
      return;
    case Phase::kSucceeded:
    case Phase::kStopping:
      if (stop.round != RoundNow()) return;
      s_.stop_cause = stop.cause;
      s_.stop_asked = true;
      ReportEarlyEnd(stop.cause);
      // Unlike this node's own failure, Stop states whether another round follows.
      StopWorkers(stop);
      if (!s_.workers_live) return AnswerStop();
      s_.phase = Phase::kStopping;
      return;
    case Phase::kLeaving:
      // The workers are being stopped already, unless a user does not want to wait.
      if (WantsKill(stop)) Kill();
      if (stop.round != RoundNow()) {
        effects_.push_back(ReportStopped{stop.round, {}});  // it never started here
      } else if (!s_.workers_live) {
        ReportEnds();
      }
      return;
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const Finish& finish) {
  s_.joined = true;
  Verdict verdict = finish.verdict;
  const bool drained =
      verdict.cause.has_value() && verdict.cause->kind == FailureKind::kNodeDrained;
  if (drained && s_.own_notice.has_value()) verdict.exit_code = s_.own_notice->exit_code;
  switch (s_.phase) {
    case Phase::kWaiting:
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kSucceeded:
    case Phase::kStopping:
      return StopAndEnd(verdict.exit_code, VerdictText(verdict), verdict);
    case Phase::kLeaving:
      return EndAsLeft(verdict);
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const Refused& refused) {
  switch (s_.phase) {
    case Phase::kWaiting:
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kSucceeded:
    case Phase::kStopping:
      return StopAndEnd(refused.exit_code > 0 ? refused.exit_code : 1,
                        absl::StrCat("ddprun: ", refused.status.message(), "\n"));
    case Phase::kLeaving:
      return EndAsInterrupted();
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const SessionEnded& ended) {
  switch (s_.phase) {
    case Phase::kWaiting:
      return StopAndEnd(1,
                        s_.joined ? LostServiceText(ended, config_, false) : UnreachedText(ended));
    case Phase::kRunning:
    case Phase::kExamining:
      return StopAndEnd(1, LostServiceText(ended, config_, false));
    case Phase::kSucceeded:
      return StopAndEnd(1, LostServiceText(ended, config_, true));
    case Phase::kStopping:
      if (!s_.failure.has_value()) return StopAndEnd(1, LostServiceText(ended, config_, false));
      return StopAndEnd(ToExitCode(*s_.failure),
                        LocalFailureText(*s_.failure, absl::StrCat(ServiceName(config_),
                                                                   " was lost before its verdict: ",
                                                                   ended.status.message())),
                        LocalVerdict());
    case Phase::kLeaving:
      return EndAsInterrupted();
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

// ---- Workers

void Stepper::operator()(const WorkerEnded& ended) {
  s_.ends.push_back(ToWorkerEnds(ended));
  if (IsSuccess(ended.outcome)) s_.succeeded.push_back(ended);
  switch (s_.phase) {
    case Phase::kRunning:
    case Phase::kExamining:
      if (!IsSuccess(ended.outcome)) Fail(ToFailure(ended, *s_.round, config_.host));
      return;
    case Phase::kStopping: {
      if (IsSuccess(ended.outcome) || ended.stopped) return;
      // It failed before this agent's signal, so it may have caused the failure that was reported
      // first. A failure that cannot be the cause is only listed among the ends.
      Failure failure = ToFailure(ended, *s_.round, config_.host);
      if (s_.failure.has_value() && !TakesThePlaceOf(failure, *s_.failure)) return;
      s_.failure = std::move(failure);
      effects_.push_back(SendReport{WorkerFailed{RoundNow(), *s_.failure}});
      return;
    }
    case Phase::kLeaving:
    case Phase::kEnding:
    case Phase::kWaiting:
    case Phase::kSucceeded:
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const WorkerHung& hung) {
  switch (s_.phase) {
    case Phase::kRunning:
    case Phase::kExamining:
      Fail(ToFailure(hung, *s_.round, config_.host));
      effects_.push_back(KillWorker{hung.local_rank});
      return;
    case Phase::kStopping:  // this worker or another one failed while the stacks were read
    case Phase::kWaiting:
    case Phase::kSucceeded:
    case Phase::kLeaving:
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const WorkerLeft& left) {
  switch (s_.phase) {
    case Phase::kRunning:
    case Phase::kExamining:
      return Fail(ToFailure(left, *s_.round, config_.host));
    case Phase::kStopping:
    case Phase::kWaiting:
    case Phase::kSucceeded:
    case Phase::kLeaving:
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const WorkersCanBeKept& event) {
  switch (s_.phase) {
    case Phase::kWaiting:
      effects_.push_back(SendReport{CanBeKept{kNoRound, event.all}});
      return;
    case Phase::kRunning:
    case Phase::kExamining:
      effects_.push_back(SendReport{CanBeKept{RoundNow(), event.all}});
      return;
    case Phase::kSucceeded:
    case Phase::kStopping:
    case Phase::kLeaving:
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const StacksRead&) {
  switch (s_.phase) {
    case Phase::kExamining:
      return BeginStop(Stop(*s_.deferred_stop));
    case Phase::kWaiting:
    case Phase::kRunning:
    case Phase::kSucceeded:
    case Phase::kStopping:
    case Phase::kLeaving:
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const LeftBehind& left) {
  switch (s_.phase) {
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kStopping:
    case Phase::kLeaving:
    case Phase::kEnding:
      effects_.push_back(PrintNote{LeftBehindText(left)});
      return;
    case Phase::kWaiting:
    case Phase::kSucceeded:
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const AllGone& gone) {
  if (!s_.workers_live) return;
  s_.workers_live = false;
  s_.kept_live = gone.kept;
  s_.kill_deadline.reset();
  s_.give_up_deadline.reset();
  switch (s_.phase) {
    case Phase::kRunning:
    case Phase::kExamining:
      s_.phase = Phase::kSucceeded;
      effects_.push_back(SendReport{NodeSucceeded{RoundNow()}});
      if (s_.deferred_stop.has_value()) BeginStop(Stop(*s_.deferred_stop));
      return;
    case Phase::kStopping:
      if (!s_.stop_asked) return;
      if (s_.kept_live && s_.another_round == false) return Terminate(/*another_round=*/false);
      return AnswerStop();
    case Phase::kLeaving:
      // They had left the round when this node began to leave the run.
      if (s_.kept_live) return Terminate(/*another_round=*/false);
      ReportEnds();
      return AwaitVerdict();
    case Phase::kEnding:
      if (s_.kept_live) return Terminate(/*another_round=*/false);
      return EndNow();
    case Phase::kWaiting:
    case Phase::kSucceeded:
    case Phase::kEnded:
      return;
  }
}

// ---- Signals, and the processes that this one depends on

void Stepper::operator()(const SignalReceived& event) {
  switch (s_.phase) {
    case Phase::kWaiting:
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kSucceeded:
    case Phase::kStopping:
      // Workers receive the same signal, as under torchrun: SIGINT is Python's KeyboardInterrupt,
      // SIGUSR1 a scheduler's request to write a checkpoint.
      LeaveRun(event.signal, event.to_workers);
      if (s_.workers_live) {
        effects_.push_back(PrintNote{absl::StrCat(
            "got ", SignalName(event.signal), ": the workers have ",
            InSeconds(config_.shutdown_timeout), " to end; a second signal kills them at once")});
      }
      return;
    case Phase::kLeaving:
      if (IsEcho()) return;
      if (!s_.signal.has_value()) NoteSignal(event.signal);
      // The node that hosts the service stops waiting for the other nodes, too.
      if (config_.hosts_service) SendLeave(/*at_once=*/true);
      if (!s_.workers_live) return EndAsInterrupted();
      return Kill();
    case Phase::kEnding:
      if (!s_.signal.has_value()) return NoteSignal(event.signal);
      if (!IsEcho()) Kill();
      return;
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const WardenLost&) {
  switch (s_.phase) {
    case Phase::kWaiting:
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kSucceeded:
    case Phase::kStopping:
      LeaveRun(SIGKILL, SIGTERM, /*at_once=*/true);
      if (s_.workers_live) Kill();
      return;
    case Phase::kLeaving:
    case Phase::kEnding:
      if (s_.workers_live) Kill();
      return;
    case Phase::kEnded:
      return;
  }
}

// As SIGHUP, but with a short grace period: the head may have been killed to clear the machines.
void Stepper::operator()(const ControlPipeLost&) {
  s_.hurried = true;
  switch (s_.phase) {
    case Phase::kWaiting:
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kSucceeded:
    case Phase::kStopping:
      LeaveRun(SIGHUP, SIGTERM, /*at_once=*/true);
      break;
    case Phase::kLeaving:
    case Phase::kEnding:
      break;
    case Phase::kEnded:
      return;
  }
  if (s_.kill_deadline.has_value())
    s_.kill_deadline = std::min(*s_.kill_deadline, now_ + kControlPipeGrace);
  if (s_.phase == Phase::kLeaving && !s_.workers_live) AwaitVerdict();
}

void Stepper::operator()(const DeadlinePassed&) {
  if (s_.phase == Phase::kEnded) return;
  if (IsOver(s_.notice_deadline)) {
    s_.notice_deadline.reset();
    ShowWaiting();
  }
  if (IsOver(s_.examine_deadline)) BeginStop(Stop(*s_.deferred_stop));
  if (IsOver(s_.kill_deadline)) {
    effects_.push_back(PrintNote{absl::StrCat(
        "workers that did not end within ", InSeconds(Grace()), " of ", SignalName(s_.term_signal),
        s_.term_keeps ? ", or leave the round," : "", " are killed")});
    Kill(/*keep=*/s_.term_keeps);
  }
  if (IsOver(s_.give_up_deadline)) GiveUp();
  if (IsOver(s_.leave_deadline)) {
    SendLeave(/*at_once=*/true);
    EndAsInterrupted();
  }
}

// ---- Why this node waits

void Stepper::NoteWaiting(const std::string& reason, std::chrono::milliseconds remaining) {
  if (s_.phase != Phase::kWaiting || reason == s_.waiting_reason) return;
  s_.waiting_reason = reason;
  s_.waiting_until = now_ + remaining;
  if (s_.notice_shown) {
    ShowWaiting();
  } else if (!s_.notice_deadline.has_value()) {
    s_.notice_deadline = now_ + kNoticeDelay;
  }
}

void Stepper::ShowWaiting() {
  s_.notice_shown = true;
  const auto remaining =
      std::chrono::duration_cast<std::chrono::milliseconds>(*s_.waiting_until - now_);
  std::string text = s_.waiting_reason;
  if (remaining.count() > 0) absl::StrAppend(&text, "; ", InSeconds(remaining), " left");
  effects_.push_back(PrintNote{std::move(text)});
}

// ----

Effects Step(SupervisorState& state, const Event& event, TimePoint now,
             const SupervisorConfig& config) {
  Stepper stepper(state, now, config);
  std::visit(stepper, event);
  return stepper.Take();
}

std::optional<TimePoint> NextDeadline(const SupervisorState& state) {
  return Earliest({state.notice_deadline, state.examine_deadline, state.kill_deadline,
                   state.give_up_deadline, state.leave_deadline});
}

}  // namespace ddprun
