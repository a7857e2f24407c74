// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/supervisor.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/supervisor/verdict.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/values/first_cause.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {
namespace {

std::string Seconds(std::chrono::milliseconds time) {
  return absl::StrCat(std::chrono::ceil<std::chrono::seconds>(time).count(), " s");
}

std::string ServiceName(const SupervisorConfig& config) {
  return config.service.empty() ? "the rendezvous service in this process"
                                : absl::StrCat("the rendezvous service at ", config.service);
}

// One step: the state, what is known about the moment, and the effects so far. A method per event;
// each switches over every phase in the order of the diagram, without a default, so that a new
// phase cannot be forgotten.
class Stepper {
 public:
  Stepper(SupervisorState& state, TimePoint now, const SupervisorConfig& config)
      : s_(state), now_(now), config_(config) {}

  Effects Take() { return std::move(effects_); }

  void operator()(const Connecting& event) {
    NoteWaiting(absl::StrCat(ServiceName(config_), " is not reached yet: ", event.reason),
                event.remaining);
  }

  void operator()(const Reconnecting& event) {
    if (s_.phase == Phase::kEnding || s_.phase == Phase::kEnded) return;
    effects_.push_back(
        PrintNote{absl::StrCat("the connection to ", ServiceName(config_), " broke: ", event.reason,
                               "; ", s_.workers_live ? "the workers go on, " : "",
                               "trying again for ", Seconds(event.remaining))});
  }

  void operator()(const Reconnected&) {
    if (s_.phase == Phase::kEnding || s_.phase == Phase::kEnded) return;
    effects_.push_back(PrintNote{absl::StrCat("connected to ", ServiceName(config_), " again")});
  }

  void operator()(const Accepted&) { s_.joined = true; }

  void operator()(const Waiting& event) {
    s_.joined = true;
    NoteWaiting(event.reason, event.remaining);
  }

  void operator()(const Start& start) {
    s_.joined = true;
    // Told again after the connection broke.
    if (s_.round.has_value() && start.round == RoundNow()) return;
    switch (s_.phase) {
      case Phase::kWaiting:
        AnnounceRestart(start);
        s_.round = start;
        s_.failure.reset();
        s_.ends.clear();
        s_.stop_cause.reset();
        s_.waiting_reason.clear();
        s_.notice_deadline.reset();
        s_.notice_shown = false;
        s_.workers_live = true;
        s_.phase = Phase::kRunning;
        effects_.push_back(SpawnRound{start});
        return;
      case Phase::kRunning:
      case Phase::kSucceeded:
      case Phase::kStopping:
        StopAndEnd(1, absl::StrCat(
                          "ddprun: ", ServiceName(config_), " started round ",
                          ToNumber(start.round), " while round ", ToNumber(RoundNow()),
                          " is not over on this node; do both run the same version of ddprun?\n"));
        return;
      case Phase::kLeaving:  // crossed our Leave on the way
      case Phase::kEnding:
      case Phase::kEnded:
        return;
    }
  }

  void operator()(const Stop& stop) {
    s_.joined = true;
    switch (s_.phase) {
      case Phase::kWaiting:
        if (s_.round.has_value() && stop.round == RoundNow()) {
          s_.stop_cause = stop.cause;  // answered already: the service knows better now
          return;
        }
        // A round that never started here has no worker to stop, but its answer is awaited.
        effects_.push_back(ReportStopped{stop.round, {}});
        return;
      case Phase::kRunning:
        if (stop.round != RoundNow()) return;
        s_.stop_cause = stop.cause;
        s_.stop_asked = true;
        s_.phase = Phase::kStopping;
        StopWorkers(stop);
        return;
      case Phase::kSucceeded:
      case Phase::kStopping:
        if (stop.round != RoundNow()) return;
        s_.stop_cause = stop.cause;
        s_.stop_asked = true;
        StopWorkers(stop);  // of its own failure the node knew less
        if (!s_.workers_live) AnswerStop();
        return;
      case Phase::kLeaving:
        // The workers are being stopped already, unless somebody does not want to wait.
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

  void operator()(const Finish& finish) {
    s_.joined = true;
    const Verdict& verdict = finish.verdict;
    switch (s_.phase) {
      case Phase::kWaiting:
      case Phase::kRunning:
      case Phase::kSucceeded:
      case Phase::kStopping:
        StopAndEnd(verdict.exit_code, VerdictText(verdict), verdict);
        return;
      case Phase::kLeaving:
        EndAsLeft(verdict);
        return;
      case Phase::kEnding:
      case Phase::kEnded:
        return;
    }
  }

  void operator()(const Refused& refused) {
    switch (s_.phase) {
      case Phase::kWaiting:
      case Phase::kRunning:
      case Phase::kSucceeded:
      case Phase::kStopping:
        StopAndEnd(refused.exit_code > 0 ? refused.exit_code : 1,
                   absl::StrCat("ddprun: ", refused.status.message(), "\n"));
        return;
      case Phase::kLeaving:
        StopAndEnd(SignalExitCode(), InterruptedText());
        return;
      case Phase::kEnding:
      case Phase::kEnded:
        return;
    }
  }

  void operator()(const SessionEnded& ended) {
    switch (s_.phase) {
      case Phase::kWaiting:
        StopAndEnd(1, s_.joined ? LostText(ended) : UnreachedText(ended));
        return;
      case Phase::kRunning:
      case Phase::kSucceeded:
        StopAndEnd(1, LostText(ended));
        return;
      case Phase::kStopping:
        if (s_.failure.has_value()) {
          StopAndEnd(ToExitCode(*s_.failure),
                     LocalFailureText(*s_.failure, absl::StrCat(ServiceName(config_),
                                                                " was lost before its verdict: ",
                                                                ended.status.message())),
                     LocalVerdict());
        } else {
          StopAndEnd(1, LostText(ended));
        }
        return;
      case Phase::kLeaving:
        StopAndEnd(SignalExitCode(), InterruptedText());
        return;
      case Phase::kEnding:
      case Phase::kEnded:
        return;
    }
  }

  void operator()(const WorkerEnded& ended) {
    NoteEnd(ended);
    switch (s_.phase) {
      case Phase::kRunning:
        if (IsSuccess(ended.outcome)) return;
        s_.failure = ToFailure(ended);
        s_.phase = Phase::kStopping;
        // The report first: the other nodes stop while this one does.
        effects_.push_back(SendReport{WorkerFailed{RoundNow(), *s_.failure}});
        Terminate({.another_round = MayFollow()});
        return;
      case Phase::kStopping: {
        if (IsSuccess(ended.outcome) || ended.stopped) return;
        // It failed before this agent's signal: what was heard of first may follow from it. What
        // cannot be the cause need not be said, it is among the ends.
        Failure failure = ToFailure(ended);
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

  void operator()(const WorkerHung& hung) {
    switch (s_.phase) {
      case Phase::kRunning:
        s_.failure = ToFailure(hung);
        s_.phase = Phase::kStopping;
        effects_.push_back(SendReport{WorkerFailed{RoundNow(), *s_.failure}});
        Terminate({.another_round = MayFollow()});
        effects_.push_back(KillWorker{hung.local_rank});
        return;
      case Phase::kStopping:  // it was seen to fail, or another one, while its stacks were read
      case Phase::kWaiting:
      case Phase::kSucceeded:
      case Phase::kLeaving:
      case Phase::kEnding:
      case Phase::kEnded:
        return;
    }
  }

  void operator()(const AllGone&) {
    if (!s_.workers_live) return;
    s_.workers_live = false;
    s_.kill_deadline.reset();
    s_.give_up_deadline.reset();
    switch (s_.phase) {
      case Phase::kRunning:
        s_.phase = Phase::kSucceeded;
        effects_.push_back(SendReport{NodeSucceeded{RoundNow()}});
        return;
      case Phase::kStopping:
        if (s_.stop_asked) AnswerStop();
        return;
      case Phase::kLeaving:
        ReportEnds();
        AwaitVerdict();
        return;
      case Phase::kEnding:
        EndNow();
        return;
      case Phase::kWaiting:
      case Phase::kSucceeded:
      case Phase::kEnded:
        return;
    }
  }

  void operator()(const SignalReceived& event) {
    switch (s_.phase) {
      case Phase::kWaiting:
      case Phase::kRunning:
      case Phase::kSucceeded:
      case Phase::kStopping:
        // A program that was written for torchrun has a handler of that very signal: an interrupt
        // is Python's KeyboardInterrupt, SIGUSR1 a scheduler's word to write a checkpoint.
        LeaveRun(event.signal, event.signal);
        if (s_.workers_live) {
          effects_.push_back(PrintNote{absl::StrCat(
              "got ", SignalName(event.signal), ": the workers have ",
              Seconds(config_.shutdown_timeout), " to end; a second signal kills them at once")});
        }
        return;
      case Phase::kLeaving:
        if (IsEcho()) return;
        // Whoever hosts the service stops waiting for the other nodes, too.
        if (config_.hosts_service) SendLeave(/*at_once=*/true);
        if (s_.workers_live) {
          Kill();
        } else {
          StopAndEnd(SignalExitCode(), InterruptedText());
        }
        return;
      case Phase::kEnding:
        if (!s_.signal.has_value()) {
          NoteSignal(event.signal);
          return;
        }
        if (IsEcho()) return;
        Kill();
        return;
      case Phase::kEnded:
        return;
    }
  }

  void operator()(const WardenLost&) {
    switch (s_.phase) {
      case Phase::kWaiting:
      case Phase::kRunning:
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

  // As if its terminal had gone, but that the time is short: the head may have been killed to have
  // everything off the machines.
  void operator()(const ControlPipeLost&) {
    s_.hurried = true;
    switch (s_.phase) {
      case Phase::kWaiting:
      case Phase::kRunning:
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

  void operator()(const DeadlinePassed&) {
    if (s_.phase == Phase::kEnded) return;
    if (IsOver(s_.notice_deadline)) {
      s_.notice_deadline.reset();
      ShowWaiting();
    }
    if (IsOver(s_.kill_deadline)) {
      effects_.push_back(
          PrintNote{absl::StrCat("workers that did not end within ", Seconds(Grace()), " of ",
                                 SignalName(s_.term_signal), " are killed")});
      Kill();
    }
    if (IsOver(s_.give_up_deadline)) GiveUp();
    if (IsOver(s_.leave_deadline)) {
      SendLeave(/*at_once=*/true);
      StopAndEnd(SignalExitCode(), InterruptedText());
    }
  }

 private:
  bool IsOver(const std::optional<TimePoint>& deadline) const {
    return deadline.has_value() && *deadline <= now_;
  }
  bool IsEcho() const { return s_.signal.has_value() && now_ - s_.signal_time < kSignalEchoTime; }
  RoundId RoundNow() const { return s_.round.has_value() ? s_.round->round : kNoRound; }
  std::chrono::milliseconds LeaveTimeout() const {
    return s_.hurried ? std::chrono::milliseconds(kControlPipeLeaveTimeout) : kLeaveTimeout;
  }
  static bool WantsKill(const Stop& stop) {
    return stop.cause.kind == FailureKind::kRunStopped && stop.cause.signal == SIGKILL;
  }
  // As far as is known before the service says so.
  bool MayFollow() const {
    return s_.round->restart_count - s_.round->restarts_forgiven < s_.round->restarts_max;
  }
  int SignalExitCode() const { return 128 + s_.signal.value_or(0); }

  // -- stopping workers

  struct Why {
    bool another_round = false;
    int signal = SIGTERM;
  };

  std::chrono::milliseconds Grace() const {
    const auto grace = s_.another_round ? config_.restart_timeout : config_.shutdown_timeout;
    return s_.hurried ? std::min<std::chrono::milliseconds>(grace, kControlPipeGrace) : grace;
  }

  void StopWorkers(const Stop& stop) {
    // Somebody does not want to wait.
    if (WantsKill(stop)) {
      Kill();
    } else {
      Terminate({.another_round = !stop.last});
    }
  }

  // Again once the reason has changed: the workers have the time for that from the first signal.
  void Terminate(Why why) {
    if (!s_.workers_live || s_.give_up_deadline.has_value()) return;
    s_.another_round = why.another_round;
    if (!s_.kill_deadline.has_value()) {
      effects_.push_back(TerminateWorkers{why.signal});
      s_.term_signal = why.signal;
      s_.term_time = now_;
    }
    s_.kill_deadline = s_.term_time + Grace();
  }

  void Kill() {
    s_.kill_deadline.reset();
    if (!s_.workers_live) return;
    effects_.push_back(KillWorkers{});
    if (!s_.give_up_deadline.has_value()) s_.give_up_deadline = now_ + kKillTimeout;
  }

  void AnswerStop() {
    s_.stop_asked = false;
    s_.phase = Phase::kWaiting;
    ReportEnds();
  }

  void ReportEnds() { effects_.push_back(ReportStopped{RoundNow(), Folded(s_.ends)}); }

  // -- leaving

  // `signal` is why this agent ends, `to_workers` what they are asked to end with.
  void LeaveRun(int signal, int to_workers, bool at_once = false) {
    s_.signal = signal;
    s_.signal_time = now_;
    SendLeave(at_once);
    s_.phase = Phase::kLeaving;
    if (s_.workers_live) {
      Terminate({.signal = to_workers});
    } else if (s_.joined) {
      AwaitVerdict();
    } else {
      StopAndEnd(SignalExitCode(), InterruptedText());  // nobody knows of this node yet
    }
  }

  void SendLeave(bool at_once) {
    Leave leave;
    leave.reason.kind = FailureKind::kNodeInterrupted;
    leave.reason.host = config_.host;
    if (s_.hurried) {
      leave.reason.message = "its connection to the ddprun that started it ended";
    } else {
      leave.reason.signal = s_.signal.value_or(0);
    }
    if (s_.round.has_value()) leave.reason.node_rank = s_.round->node_rank;
    leave.close_run = config_.hosts_service;
    leave.at_once = at_once;
    effects_.push_back(SendReport{std::move(leave)});
  }

  // This node's workers have ended, and the service has been told. The node that hosts it is the
  // last to go: the service's own deadline for the other nodes' workers bounds that wait.
  void AwaitVerdict() {
    if (!config_.hosts_service || s_.hurried) {
      s_.leave_deadline = now_ + LeaveTimeout();
      return;
    }
    s_.waiting_reason =
        "this node's workers have ended; waiting for the workers of the other nodes (a second "
        "signal ends the run at once)";
    s_.waiting_until = now_;
    s_.notice_deadline = now_ + kNoticeDelay;
  }

  // The run is ending already, and the workers have their time for that: a first signal is no
  // reason to cut it short.
  void NoteSignal(int signal) {
    s_.signal = signal;
    s_.signal_time = now_;
    if (!s_.kill_deadline.has_value()) return;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*s_.kill_deadline - now_);
    effects_.push_back(PrintNote{
        absl::StrCat("got ", SignalName(signal), ": the run is ending already, the workers have ",
                     Seconds(left), " left; a second signal kills them at once")});
  }

  // The service has answered that this node leaves.
  void EndAsLeft(Verdict verdict) {
    if (verdict.success) return StopAndEnd(0, VerdictText(verdict), std::move(verdict));
    verdict.exit_code = SignalExitCode();
    const bool is_own = verdict.cause.has_value() &&
                        verdict.cause->kind == FailureKind::kNodeInterrupted &&
                        verdict.cause->host == config_.host;
    std::string text = VerdictText(verdict);
    if (is_own) text = config_.hosts_service ? InterruptedText() : LeftText(*verdict.cause);
    StopAndEnd(SignalExitCode(), std::move(text), std::move(verdict));
  }

  // -- the end

  void StopAndEnd(int exit_code, std::string text, std::optional<Verdict> verdict = std::nullopt) {
    s_.end = ddprun::End{exit_code, std::move(text), std::move(verdict)};
    s_.phase = Phase::kEnding;
    if (s_.workers_live) {
      Terminate({});
    } else {
      EndNow();
    }
  }

  void EndNow() {
    s_.phase = Phase::kEnded;
    s_.notice_deadline.reset();
    s_.kill_deadline.reset();
    s_.give_up_deadline.reset();
    s_.leave_deadline.reset();
    effects_.push_back(*s_.end);
  }

  void GiveUp() {
    if (s_.phase == Phase::kLeaving) SendLeave(/*at_once=*/true);
    if (!s_.end.has_value()) s_.end = ddprun::End{s_.signal.has_value() ? SignalExitCode() : 1, ""};
    effects_.push_back(ReportStuck{});
    EndNow();
  }

  // -- words

  void NoteEnd(const WorkerEnded& ended) {
    WorkerEnds end{.first = ended.local_rank};
    if (IsSuccess(ended.outcome)) {
      end.kind = EndKind::kSucceeded;
    } else if (ended.stopped) {
      end.kind = EndKind::kStopped;
    } else if (const auto* exited = std::get_if<Exited>(&ended.outcome)) {
      end.kind = EndKind::kExited;
      end.code = exited->code;
    } else if (const auto* signaled = std::get_if<Signaled>(&ended.outcome)) {
      end.kind = EndKind::kSignaled;
      end.code = signaled->signal;
    } else if (const auto* unspawned = std::get_if<SpawnFailed>(&ended.outcome)) {
      end.kind = EndKind::kNotStarted;
      end.code = unspawned->exit_code;
    }
    s_.ends.push_back(end);
  }

  // Where the service is gone: what this node knows.
  Verdict LocalVerdict() const {
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

  // Of a WorkerEnded or a WorkerHung: who it was, and what is known of either.
  template <typename Event>
  Failure FailureOfWorker(const Event& event) const {
    Failure failure;
    failure.rank = s_.round->rank_first + event.local_rank;
    failure.local_rank = event.local_rank;
    failure.node_rank = s_.round->node_rank;
    failure.host = config_.host;
    failure.pid = event.pid;
    failure.age = event.age;
    failure.last_lines = event.last_lines;
    failure.places = event.places;
    return failure;
  }

  Failure ToFailure(const WorkerEnded& ended) const {
    Failure failure = FailureOfWorker(ended);
    failure.message = ended.message;
    failure.traceback = ended.traceback;
    failure.oom = ended.oom;
    failure.core_file = ended.core_file;
    if (const auto* exited = std::get_if<Exited>(&ended.outcome)) {
      failure.kind = FailureKind::kWorkerExited;
      failure.exit_code = exited->code;
    } else if (const auto* signaled = std::get_if<Signaled>(&ended.outcome)) {
      failure.kind = FailureKind::kWorkerSignaled;
      failure.signal = signaled->signal;
    } else if (const auto* unspawned = std::get_if<SpawnFailed>(&ended.outcome)) {
      failure.kind = FailureKind::kSpawnFailed;
      failure.exit_code = unspawned->exit_code;
      failure.message = unspawned->message;
    }
    return failure;
  }

  Failure ToFailure(const WorkerHung& hung) const {
    Failure failure = FailureOfWorker(hung);
    failure.kind = FailureKind::kWorkerHung;
    failure.hang = hung.hang;
    return failure;
  }

  void NoteWaiting(const std::string& reason, std::chrono::milliseconds remaining) {
    if (s_.phase != Phase::kWaiting || reason == s_.waiting_reason) return;
    s_.waiting_reason = reason;
    s_.waiting_until = now_ + remaining;
    if (s_.notice_shown) {
      ShowWaiting();
    } else if (!s_.notice_deadline.has_value()) {
      s_.notice_deadline = now_ + kNoticeDelay;
    }
  }

  void ShowWaiting() {
    s_.notice_shown = true;
    const auto remaining =
        std::chrono::duration_cast<std::chrono::milliseconds>(*s_.waiting_until - now_);
    std::string text = s_.waiting_reason;
    if (remaining.count() > 0) absl::StrAppend(&text, "; ", Seconds(remaining), " left");
    effects_.push_back(PrintNote{std::move(text)});
  }

  void AnnounceRestart(const Start& start) {
    if (s_.stop_cause.has_value() && s_.stop_cause->kind == FailureKind::kNodeDrained) {
      effects_.push_back(PrintNote{
          absl::StrCat("round ", ToNumber(start.round), " begins: ", ToSentence(*s_.stop_cause))});
      return;
    }
    if (start.restart_count == 0 || !s_.round.has_value()) return;
    std::string text =
        absl::StrCat("restart ", start.restart_count - start.restarts_forgiven, " of ",
                     start.restarts_max, " as round ", ToNumber(start.round));
    if (start.restarts_forgiven > 0) {
      absl::StrAppend(&text, " (", start.restart_count, " in all)");
    }
    if (s_.stop_cause.has_value()) absl::StrAppend(&text, ": ", ToSentence(*s_.stop_cause));
    if (!start.left_out.empty()) absl::StrAppend(&text, "; ", start.left_out);
    effects_.push_back(PrintNote{std::move(text)});
  }

  std::string InterruptedText() const {
    return absl::StrCat("ddprun: run ended: ddprun on ", config_.host, " got ",
                        SignalName(s_.signal.value_or(0)), "\n  exit code: ", SignalExitCode(),
                        "\n");
  }

  std::string LeftText(const Failure& reason) const {
    return absl::StrCat("ddprun: this node has left the run: ", ToSentence(reason),
                        "\n  exit code: ", SignalExitCode(), "\n");
  }

  std::string UnreachedText(const SessionEnded& ended) const {
    // Reached, and no more waiting would help: the sentence is whole.
    if (absl::IsFailedPrecondition(ended.status))
      return absl::StrCat("ddprun: ", ended.status.message(), "\n");
    return absl::StrCat(
        "ddprun: ", ServiceName(config_), " could not be reached within ",
        Seconds(config_.join_timeout), ": ", ended.status.message(),
        "; check that node 0 is started, that its address and port are the same on every node, and "
        "that no firewall is in between (--join-timeout waits longer)\n");
  }

  std::string LostText(const SessionEnded& ended) const {
    std::string out = absl::StrCat("ddprun: lost ", ServiceName(config_));
    if (!ended.status.ok()) absl::StrAppend(&out, ": ", ended.status.message());
    if (s_.phase == Phase::kSucceeded)
      absl::StrAppend(&out, ", after all workers of this node had succeeded");
    absl::StrAppend(&out,
                    "; look at the output of ddprun on the node that hosts it\n  exit code: 1\n");
    return out;
  }

  SupervisorState& s_;
  const TimePoint now_;
  const SupervisorConfig& config_;
  Effects effects_;
};

}  // namespace

Effects Step(SupervisorState& state, const Event& event, TimePoint now,
             const SupervisorConfig& config) {
  Stepper stepper(state, now, config);
  std::visit(stepper, event);
  return stepper.Take();
}

std::optional<TimePoint> NextDeadline(const SupervisorState& state) {
  std::optional<TimePoint> next;
  for (const auto* deadline : {&state.notice_deadline, &state.kill_deadline,
                               &state.give_up_deadline, &state.leave_deadline}) {
    if (deadline->has_value() && (!next.has_value() || **deadline < *next)) next = *deadline;
  }
  return next;
}

}  // namespace ddprun
