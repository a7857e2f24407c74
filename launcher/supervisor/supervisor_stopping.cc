// SPDX-License-Identifier: Apache-2.0
// How the workers of a round are stopped, how this node leaves the run, and how the agent ends.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/supervisor/supervisor_stepper.h"
#include "launcher/supervisor/verdict.h"
#include "launcher/supervisor/worker_failure.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/values/first_cause.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {

bool WantsKill(const Stop& stop) {
  return stop.cause.kind == FailureKind::kRunStopped && stop.cause.signal == SIGKILL;
}

bool Stepper::IsEcho() const {
  return s_.signal.has_value() && now_ - s_.signal_time < kSignalEchoTime;
}

// ---- Stopping the workers

void Stepper::Fail(Failure failure) {
  std::optional<Failure> early = FindEarlyEnd(s_.succeeded, failure, *s_.round, config_.host);
  s_.failure = early ? *std::move(early) : std::move(failure);
  s_.phase = Phase::kStopping;
  // The report comes first, so that the other nodes stop at the same time.
  effects_.push_back(SendReport{WorkerFailed{RoundNow(), *s_.failure}});
  if (s_.deferred_stop.has_value()) {
    BeginStop(Stop(*s_.deferred_stop));
  } else {
    Terminate(std::nullopt);
  }
}

// A worker of another node may have failed because one of this node had ended.
void Stepper::ReportEarlyEnd(const Failure& cause) {
  std::optional<Failure> early = FindEarlyEnd(s_.succeeded, cause, *s_.round, config_.host);
  if (!early || (s_.failure && !TakesThePlaceOf(*early, *s_.failure))) return;
  s_.failure = *std::move(early);
  effects_.push_back(SendReport{WorkerFailed{RoundNow(), *s_.failure}});
}

// A stop by a user does not wait for stacks; a corrected cause replaces the deferred one.
void Stepper::HandleStopWhileExamining(const Stop& stop) {
  if (stop.cause.kind != FailureKind::kWorkerHung) return BeginStop(stop);
  s_.deferred_stop = stop;
}

// For the current round, also if its workers have all ended in the meantime.
void Stepper::BeginStop(const Stop& stop) {
  s_.deferred_stop.reset();
  s_.examine_deadline.reset();
  s_.another_round = !stop.last;
  s_.stop_cause = stop.cause;
  s_.stop_asked = true;
  ReportEarlyEnd(stop.cause);
  if (!s_.workers_live) return AnswerStop();
  s_.phase = Phase::kStopping;
  StopWorkers(stop);
}

void Stepper::StopWorkers(const Stop& stop) {
  if (WantsKill(stop)) {
    s_.another_round = false;
    Kill();
  } else {
    Terminate(!stop.last);
  }
}

// Until the service decides whether another round follows, the workers have the longer of the two
// grace periods: only the service knows the restart rules.
std::chrono::milliseconds Stepper::Grace() const {
  const auto longer = std::max(config_.restart_timeout, config_.shutdown_timeout);
  const auto grace = !s_.another_round.has_value() ? longer
                     : *s_.another_round           ? config_.restart_timeout
                                                   : config_.shutdown_timeout;
  return s_.hurried ? std::min<std::chrono::milliseconds>(grace, kControlPipeGrace) : grace;
}

void Stepper::Terminate(std::optional<bool> another_round, int signal) {
  // Without restarts, this node's own failure ends the run.
  const bool keep = another_round.value_or(s_.round.has_value() && s_.round->restarts_max > 0);
  if (!keep) TakeKeptBack();
  s_.another_round = another_round;
  if (!s_.workers_live || s_.give_up_deadline.has_value()) return;
  const bool first = !s_.kill_deadline.has_value();
  if (first) {
    s_.term_signal = signal;
    s_.term_time = now_;
  }
  if (first || (s_.term_keeps && !keep)) {
    effects_.push_back(TerminateWorkers{signal, keep});
    s_.term_keeps = keep;
  }
  s_.kill_deadline = s_.term_time + Grace();
}

void Stepper::TakeKeptBack() {
  if (!s_.kept_live) return;
  s_.kept_live = false;
  s_.workers_live = true;
}

void Stepper::Kill(bool keep) {
  if (!keep) TakeKeptBack();
  s_.kill_deadline.reset();
  if (!s_.workers_live) return;
  effects_.push_back(KillWorkers{keep});
  if (!s_.give_up_deadline.has_value()) s_.give_up_deadline = now_ + kKillTimeout;
}

void Stepper::AnswerStop() {
  s_.stop_asked = false;
  s_.phase = Phase::kWaiting;
  if (!config_.checks_health || s_.another_round != true) return ReportEnds();
  s_.checking_health = true;
  effects_.push_back(CheckHealth{});
}

void Stepper::ReportEnds() { effects_.push_back(ReportStopped{RoundNow(), Folded(s_.ends)}); }

// ---- Is this node fit for a round?

void Stepper::operator()(const HealthChecked& checked) {
  switch (s_.phase) {
    case Phase::kWaiting:
      if (s_.checking_health) return EndHealthCheck(checked);
      if (!s_.joined) NoteHealth(checked);
      return;
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kSucceeded:
    case Phase::kStopping:
    case Phase::kLeaving:
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

void Stepper::EndHealthCheck(const HealthChecked& checked) {
  s_.checking_health = false;
  if (checked.healthy) return ReportEnds();
  LeaveUnhealthy(checked.reason);
}

// Before this node joins.
void Stepper::NoteHealth(const HealthChecked& checked) {
  if (checked.healthy) {
    if (!s_.unhealthy.empty()) effects_.push_back(PrintNote{"the health check passes now"});
    s_.unhealthy.clear();
    return;
  }
  if (checked.remaining.count() <= 0)
    return StopAndEnd(1, absl::StrCat("ddprun: node ", config_.host, " has not joined: ",
                                      checked.reason, "; repair it and start ddprun again\n"));
  if (checked.reason == s_.unhealthy) return;
  s_.unhealthy = checked.reason;
  effects_.push_back(PrintNote{absl::StrCat("this node stands aside: ", checked.reason,
                                            "; it joins once the check passes, ",
                                            InSeconds(checked.remaining), " left")});
}

// ---- Leaving the run

// The service learns of it first, so that the next round, which may form as soon as all have
// stopped, has no place for this node.
void Stepper::LeaveUnhealthy(const std::string& reason) {
  s_.unhealthy = reason;
  SendLeave(/*at_once=*/false);
  s_.phase = Phase::kLeaving;
  if (AnyLive()) return Terminate(/*another_round=*/false);
  ReportEnds();
  AwaitVerdict();
}

void Stepper::LeaveRun(int signal, int to_workers, bool at_once) {
  s_.deferred_stop.reset();
  s_.examine_deadline.reset();
  s_.signal = signal;
  s_.signal_time = now_;
  SendLeave(at_once);
  s_.phase = Phase::kLeaving;
  const bool reports = std::exchange(s_.checking_health, false) && !AnyLive();
  if (reports) ReportEnds();
  if (AnyLive()) {
    Terminate(/*another_round=*/false, to_workers);
  } else if (s_.joined) {
    AwaitVerdict();
  } else {
    EndAsInterrupted();  // the service does not know of this node yet
  }
}

void Stepper::SendLeave(bool at_once) {
  Leave leave;
  leave.reason.kind = FailureKind::kNodeInterrupted;
  leave.reason.host = config_.host;
  if (!s_.unhealthy.empty()) {
    leave.reason.message = s_.unhealthy;
  } else if (s_.hurried) {
    leave.reason.message = "its connection to the ddprun that started it ended";
  } else {
    leave.reason.signal = s_.signal.value_or(0);
  }
  if (s_.round.has_value()) leave.reason.node_rank = s_.round->node_rank;
  leave.close_run = config_.hosts_service;
  leave.at_once = at_once;
  effects_.push_back(SendReport{std::move(leave)});
}

// This node's workers have ended, and the service knows. The node that hosts the service ends last;
// the service's deadline for the workers of the other nodes limits that wait.
void Stepper::AwaitVerdict() {
  if (!config_.hosts_service || s_.hurried) {
    s_.leave_deadline =
        now_ + (s_.hurried ? std::chrono::milliseconds(kControlPipeLeaveTimeout) : kLeaveTimeout);
    return;
  }
  s_.waiting_reason =
      "this node's workers have ended; waiting for the workers of the other nodes (a second "
      "signal ends the run at once)";
  s_.waiting_until = now_;
  s_.notice_deadline = now_ + kNoticeDelay;
}

// The run is ending already: a first signal does not shorten the workers' grace period.
void Stepper::NoteSignal(int signal) {
  s_.signal = signal;
  s_.signal_time = now_;
  if (!s_.kill_deadline.has_value()) return;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*s_.kill_deadline - now_);
  effects_.push_back(PrintNote{
      absl::StrCat("got ", SignalName(signal), ": the run is ending already, the workers have ",
                   InSeconds(left), " left; a second signal kills them at once")});
}

// The service has answered this node's Leave.
void Stepper::EndAsLeft(Verdict verdict) {
  if (verdict.success) return StopAndEnd(0, VerdictText(verdict), std::move(verdict));
  verdict.exit_code = SignalExitCode();
  const bool is_own = verdict.cause.has_value() &&
                      verdict.cause->kind == FailureKind::kNodeInterrupted &&
                      verdict.cause->host == config_.host;
  std::string text = VerdictText(verdict);
  if (is_own) {
    text = config_.hosts_service && s_.unhealthy.empty()
               ? InterruptedText(config_.host, s_.signal.value_or(0), verdict.cause->places)
               : LeftText(*verdict.cause, SignalExitCode());
  }
  StopAndEnd(SignalExitCode(), std::move(text), std::move(verdict));
}

// ---- The end

void Stepper::StopAndEnd(int exit_code, std::string text, std::optional<Verdict> verdict) {
  s_.deferred_stop.reset();
  s_.examine_deadline.reset();
  s_.end = End{exit_code, std::move(text), std::move(verdict)};
  s_.phase = Phase::kEnding;
  if (AnyLive()) {
    Terminate(/*another_round=*/false);
  } else {
    EndNow();
  }
}

void Stepper::EndAsInterrupted() {
  StopAndEnd(SignalExitCode(),
             s_.signal.has_value()
                 ? InterruptedText(config_.host, *s_.signal)
                 : absl::StrCat("ddprun: this node has left the run: ", s_.unhealthy, "\n"));
}

void Stepper::EndNow() {
  s_.phase = Phase::kEnded;
  s_.notice_deadline.reset();
  s_.kill_deadline.reset();
  s_.give_up_deadline.reset();
  s_.leave_deadline.reset();
  effects_.push_back(*s_.end);
}

void Stepper::GiveUp() {
  if (s_.phase == Phase::kLeaving) SendLeave(/*at_once=*/true);
  if (!s_.end.has_value()) s_.end = End{s_.signal.has_value() ? SignalExitCode() : 1, ""};
  effects_.push_back(ReportStuck{});
  EndNow();
}

// The verdict as far as this node knows it, for an end without the service.
Verdict Stepper::LocalVerdict() const {
  Verdict verdict;
  verdict.cause = s_.failure;
  verdict.exit_code = ToExitCode(*s_.failure);
  verdict.round = s_.round->round;
  verdict.restart_count = s_.round->restart_count;
  verdict.restarts_max = s_.round->restarts_max;
  verdict.world_size = s_.round->world_size;
  verdict.node_count = s_.round->node_count;
  for (const WorkerEnds& end : s_.ends) {
    const int rank = s_.round->rank_first + end.first;
    AddOutcome(end.kind, end.code, {rank, rank}, verdict.outcomes);
  }
  verdict.outcomes = ToShow(verdict.outcomes, s_.failure->rank);
  return verdict;
}

}  // namespace ddprun
