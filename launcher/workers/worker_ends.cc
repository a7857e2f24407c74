// SPDX-License-Identifier: Apache-2.0
// How workers are asked to end, and what becomes of their ends.
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/processes/process_stat.h"
#include "launcher/workers/workers.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/values/first_cause.h"

namespace ddprun {

void Workers::OnReady(const Ready& ready, TimePoint now, std::vector<Event>& events) {
  if (ready.source == Source::kWorkerEnd) return TakeEnded(now, events);
  const OutputStream stream =
      ready.source == Source::kWorkerOut ? OutputStream::kOut : OutputStream::kErr;
  log_mux_.Read(ready.worker, stream, now);  // epoll drops a closed pipe
}

void Workers::TakeEnded(TimePoint now, std::vector<Event>& events) {
  ReapHeld(now, events);
  bool any = true;
  while (any) {
    any = false;
    for (const Ready& ready : ends_.Wait(TimePoint{})) {
      any = ReapWorker(ready.worker, now, events) || any;
    }
  }
  FinishIfAllGone(now, events);
}

void Workers::ReapHeld(TimePoint now, std::vector<Event>& events) {
  for (const int worker : std::set<int>(held_)) ReapWorker(worker, now, events);
}

bool Workers::ReapWorker(int worker, TimePoint now, std::vector<Event>& events) {
  const auto index = static_cast<std::size_t>(worker);
  std::optional<OomKill> oom;
  const std::optional<Outcome> outcome = processes_.Look(index);
  const auto* signaled = outcome.has_value() ? std::get_if<Signaled>(&*outcome) : nullptr;
  std::optional<double> cpu_seconds;
  if (signaled != nullptr && signaled->signal == SIGKILL && !WasStopped(worker, *outcome)) {
    oom = oom_watch_.Explain(processes_.pid(index));
    cpu_seconds = CpuSecondsOf(processes_.pid(index));
  }
  if (!processes_.ReapIfEnded(index, /*spares_group=*/!stopping_ && !IsParked(worker))) {
    // Its pidfd stays readable and would make the loop spin until the debugger ends.
    if (processes_.IsLive(index) && held_.insert(worker).second)
      ends_.Remove(processes_.pidfd(index));
    return false;
  }
  held_.erase(worker);
  log_mux_.Drain(worker, now);
  if (IsParked(worker)) {
    EndParked(worker);
  } else {
    AddEnded(worker, std::move(oom), cpu_seconds, now);
  }
  ReleaseEvidence(now, events);
  return true;
}

// It is in no round, so this is no failure of one.
void Workers::EndParked(int worker) {
  progress_.Close(worker);
  if (end_all_ || Of(worker).signaled) return;
  ++parked_failures_;
  console_.WriteLine(OutputStream::kErr,
                     absl::StrCat("ddprun: a spare worker ended with exit code ",
                                  ExitCodeOf(*processes_.outcome(static_cast<std::size_t>(worker))),
                                  parked_failures_ < kParkedFailuresMax
                                      ? "; another one is started"
                                      : "; no other one is started, see its output"));
}

void Workers::Stop(int signal, bool keep, TimePoint now, std::vector<Event>& events) {
  // Kept and parked ones end like those of a round.
  if (!keep && !end_all_) end_all_ = round_live_ = true;
  stopping_ = true;
  if (leftovers_.has_value())
    signal == SIGKILL ? leftovers_->Kill(now) : leftovers_->Terminate(now);
  if (!round_live_) return;
  if (fork_server_ != nullptr && fork_server_->IsLoading()) {
    // Its modules may take long, and the workers that wait for them are not needed any more.
    spawner_.Cancel();
    if (!keep) parker_.Cancel();
  }
  if (IsStarting()) return deferred_stops_.push_back({signal, keep});
  TakeEnded(now, events);
  AskToEnd(signal, keep);
  FinishIfAllGone(now, events);
}

void Workers::AskToEnd(int signal, bool keep) {
  const std::vector<bool> recorded = WorkersWithRecord();
  sent_signals_.insert(signal);
  for (int i = 0; i < count(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    Worker& worker = Of(i);
    if (!processes_.IsLive(index) || worker.signaled) continue;
    if (keep && (IsParked(i) || worker.left)) continue;
    if (!worker.stopped && !worker.was_failing && !IsParked(i)) {
      // A failed program may take longer to end (teardown of the Python interpreter) than its peers
      // take to fail without it.
      worker.was_failing = recorded[index] || EndsInTraceback(log_mux_.LastLinesOf(i));
      worker.was_ending = IsEnding(processes_.pid(index));
      worker.stopped = !worker.was_failing;
    }
    if (keep && worker.can_be_kept && !worker.was_failing && !worker.was_ending &&
        progress_.Send(i, RoundBroken{ToNumber(start_.round)})) {
      continue;
    }
    worker.signaled = true;
    if (SignalsGroup(i, signal)) {
      processes_.SignalGroup(index, signal);
    } else {
      processes_.SignalProcess(index, signal);
    }
    processes_.SignalGroup(index, SIGCONT);  // a stopped process could not act on the signal
  }
}

bool Workers::SignalsGroup(int worker, int signal) const {
  const SignalScope scope = config_.options.stopping.signal_scope;
  if (signal == SIGKILL || scope == SignalScope::kGroup) return true;
  if (scope == SignalScope::kWorker) return false;
  const int local_rank = StandsFor(worker);
  const bool wrapped = !IsParked(worker) &&
                       FindWrap(config_.options.wraps, start_.rank_first + local_rank) != nullptr;
  return wrapped || !config_.program_of(local_rank).is_python;
}

bool Workers::WasStopped(int worker, const Outcome& outcome) const {
  if (!Of(worker).stopped || !Of(worker).was_ending) return Of(worker).stopped;
  // A process of which only the first thread had ended is ended by the signal.
  const auto* signaled = std::get_if<Signaled>(&outcome);
  return signaled != nullptr && sent_signals_.contains(signaled->signal);
}

// By number. With a deadline, since even a local disk may hang.
std::vector<bool> Workers::WorkersWithRecord() const {
  std::vector<std::string> files;
  for (int i = 0; i < count(); ++i) {
    const bool asked = Of(i).stopped || Of(i).was_failing || IsParked(i);
    files.push_back(processes_.IsLive(static_cast<std::size_t>(i)) && !asked ? Of(i).error_file
                                                                             : "");
  }
  std::vector<bool> none(files.size(), false);
  const auto is_there = [files = std::move(files)] {
    std::vector<bool> there;
    for (const std::string& file : files)
      there.push_back(!file.empty() && access(file.c_str(), F_OK) == 0);
    return there;
  };
  return CallWithDeadline<std::vector<bool>>(kRecordLookTimeout, is_there).value_or(none);
}

bool Workers::IsKnown(pid_t pid) const {
  return MatchForkServer(pid) != ForkServerMatch::kNo || IsWorker(pid);
}

ForkServerMatch Workers::MatchForkServer(pid_t pid) const {
  return fork_server_ != nullptr ? fork_server_->Matches(pid) : ForkServerMatch::kNo;
}

bool Workers::IsWorker(pid_t pid) const {
  for (int i = 0; i < count(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (processes_.IsLive(index) && processes_.pid(index) == pid) return true;
  }
  return false;
}

// What workers left behind and has not ended. Absent: nothing.
std::optional<std::vector<pid_t>> Workers::Orphans() const {
  bool spared = false;  // it may be an orphan, or the fork server that is just being started
  std::vector<pid_t> left = ReapAndListChildren([this, &spared](pid_t pid) {
    const ForkServerMatch match = MatchForkServer(pid);
    spared |= match == ForkServerMatch::kUnknown;
    return match != ForkServerMatch::kNo || IsWorker(pid);
  });
  if (left.empty() && !spared) return std::nullopt;
  return left;
}

bool Workers::AllSucceeded() const {
  for (int i = 0; i < size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (index >= processes_.size() || !IsSuccess(processes_.outcome(index).value_or(Exited{1})))
      return false;
  }
  return true;
}

// All processes that the workers left behind, also in other sessions, are this process's children
// by now: no process of a round may survive into the next one, but workers that are kept. Does not
// block the loop, because giving up a process that hangs in the kernel may take longer than the
// lease. True: nothing is left, or it is given up.
bool Workers::SweepOrphans(bool kept, TimePoint now, std::vector<Event>& events) {
  using Stage = LeftoverStages::Stage;
  const bool begins = !leftovers_.has_value();
  if (begins) {
    const bool has_grace = !stopping_ && AllSucceeded();
    leftovers_.emplace(
        now, has_grace ? std::optional(config_.options.stopping.leftover_timeout) : std::nullopt);
    terminated_.clear();
    leftovers_told_ = leftovers_->At(now);
  }
  const Stage stage = leftovers_->At(now);
  const bool kills = stage >= Stage::kKill;
  const int signal = kills ? SIGKILL : stage == Stage::kTerm ? SIGTERM : 0;
  const std::optional<std::vector<pid_t>> left = Orphans();
  const bool is_news = begins ? stage == Stage::kTerm : stage > leftovers_told_;
  if (is_news && left.has_value() && !left->empty() && stage != Stage::kGivenUp) {
    leftovers_told_ = stage;
    LeftBehind said{.signal = signal,
                    .remaining = std::chrono::duration_cast<std::chrono::milliseconds>(
                        leftovers_->EndOf(stage) - now),
                    .processes = {}};
    for (const pid_t pid : *left) said.processes.push_back(NameOfProcess(pid));
    events.push_back(std::move(said));
  }
  if (kills && !kept) cgroup_.Kill();
  if (!left.has_value()) return true;
  for (const pid_t pid : *left) {
    if (signal == SIGKILL || (signal == SIGTERM && terminated_.insert(pid).second))
      kill(pid, signal);
  }
  if (stage == Stage::kGivenUp) {
    for (const pid_t pid : *left) ReportStuckProcess(pid, kSweepTimeout);
    return true;
  }
  // In the grace SIGCHLD tells of the last one's end. Later processes may be inherited without it.
  next_sweep_ = signal == 0 ? leftovers_->EndOf(stage) : now + kSweepInterval;
  return false;
}

void Workers::FinishIfAllGone(TimePoint now, std::vector<Event>& events) {
  if (!round_live_ || IsStarting()) return;
  for (int i = 0; i < count(); ++i) {
    const bool ends = end_all_ ? processes_.IsLive(static_cast<std::size_t>(i)) : IsRunning(i);
    if (ends) return;
  }
  if (WaitsForSpare(now)) return;
  const bool kept = AnyKept();
  if (!SweepOrphans(kept, now, events)) return;
  // Reports the ends before the end of the round.
  ReleaseEvidence(now, events);
  awaits_evidence_ = !evidence_.empty();
  next_sweep_.reset();
  if (awaits_evidence_) return;
  leftovers_.reset();
  log_mux_.EndRound(KeptFlags(), now);  // epoll drops closed pipes
  cgroup_.Remove(/*keep=*/kept);
  for (int i = 0; i < count(); ++i) {
    if (processes_.IsLive(static_cast<std::size_t>(i))) continue;
    progress_.Close(i);
    RemoveFlightFiles(std::exchange(Of(i).flight, {}));
  }
  round_live_ = false;
  events.push_back(AllGone{kept});
}

void Workers::Kill(bool keep, TimePoint now, std::vector<Event>& events) {
  // Those that have had another signal get this one too.
  for (Worker& worker : workers_) worker.signaled = false;
  if (!keep) AbandonSpare();
  Stop(SIGKILL, keep, now, events);
  for (int i = 0; i < count(); ++i) {
    // Asked to leave the round, it has not.
    if (keep && IsRunning(i)) processes_.SignalGroup(static_cast<std::size_t>(i), SIGKILL);
  }
  if (!AnyKept() || !keep) cgroup_.Kill();
  if (starting_ != Starting::kProcesses) return;
  // Only the spawner knows a process that waits for its program's disk.
  spawner_.Cancel();
  for (const pid_t pid : Orphans().value_or(std::vector<pid_t>())) kill(pid, SIGKILL);
}

void Workers::KillOne(int local_rank, TimePoint now, std::vector<Event>& events) {
  if (!round_live_) return;
  TakeEnded(now, events);
  if (!IsLive(local_rank)) return;
  Worker& worker = Of(local_rank);
  worker.stopped = !worker.was_failing;
  sent_signals_.insert(SIGKILL);
  processes_.SignalGroup(static_cast<std::size_t>(local_rank), SIGKILL);
}

void Workers::ReportStuck() {
  if (starting_ == Starting::kProcesses) {
    console_.WriteLine(
        OutputStream::kErr,
        absl::StrCat("ddprun: the workers could not be started: the disk of ",
                     config_.programs.front().path, " does not answer; check that disk"));
  }
  for (int i = 0; i < count(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (processes_.IsLive(index)) ReportStuckProcess(processes_.pid(index), kKillTimeout);
  }
}

void Workers::ReportStuckProcess(pid_t pid, std::chrono::seconds after_kill) {
  const std::string text = ToText(LookAtStuckProcess(pid), after_kill);
  for (const absl::string_view line : absl::StrSplit(absl::StrCat("ddprun: ", text), '\n')) {
    console_.WriteLine(OutputStream::kErr, std::string(line));
  }
}

void Workers::OnChildEnded(TimePoint now, std::vector<Event>& events) {
  ReapHeld(now, events);
  // Processes of the spawners are not known here yet.
  if (IsStarting() || (parking_.has_value() && !spare_given_up_)) return;
  FinishIfAllGone(now, events);
  ReapOrphans([this](pid_t pid) { return IsKnown(pid); });
}

// Last lines and `stopped` are known at once; record and core are read from disks.
void Workers::AddEnded(int local_rank, std::optional<OomKill> oom,
                       std::optional<double> cpu_seconds, TimePoint now) {
  const auto index = static_cast<std::size_t>(local_rank);
  WorkerEnded ended;
  ended.local_rank = local_rank;
  ended.outcome = *processes_.outcome(index);
  ended.pid = processes_.pid(index);
  ended.age = AgeAt(now);
  ended.oom = std::move(oom);
  ended.asked_by = Of(local_rank).asked_by;
  const bool in_collective = FailedInCollective(local_rank, ended, now);
  ended.last_lines = log_mux_.LastLinesOf(local_rank);
  if (IsSuccess(ended.outcome)) {
    if (places_.of) ended.places = places_.of(local_rank);
    return evidence_.Add(std::move(ended));
  }
  ended.stopped = WasStopped(local_rank, ended.outcome);
  if (!ended.stopped && places_.now) ended.places = places_.now();
  if (!ended.stopped && in_collective && !stopping_) LetPeersSpeak(now);
  if (!ended.stopped && !stopping_) ReadDumpsOfFailure(local_rank, now);
  WorkerEvidence::Question question{.record_file = Of(local_rank).error_file,
                                    .cpu_seconds = cpu_seconds,
                                    .is_python = config_.program_of(local_rank).is_python};
  const auto* signaled = std::get_if<Signaled>(&ended.outcome);
  if (signaled != nullptr && signaled->core_dumped) {
    question.core_of_start = Of(local_rank).started_on_wall;
    question.signal = signaled->signal;
  }
  // It had failed before this agent's signal ended it: the exit code of a program that fails by
  // itself.
  if (signaled != nullptr && Of(local_rank).was_failing) ended.outcome = Exited{1};
  evidence_.Add(std::move(ended), std::move(question), now);
}

// Gloo ends the process where a message has another length than is expected.
bool Workers::FailedInCollective(int local_rank, const WorkerEnded& ended, TimePoint now) {
  if (!places_.on_ended) return false;
  const bool waited = places_.on_ended(local_rank, progress_.Read(local_rank), now);
  const auto* signaled = std::get_if<Signaled>(&ended.outcome);
  const bool aborted = signaled != nullptr && signaled->signal == SIGABRT;
  return watched_ && (waited || aborted) && !IsSuccess(ended.outcome);
}

// A rank that fails in a collective takes its peers with it, one after the other, and what they say
// tells which of them is the odd one out. Those that can be kept do not end because of it.
void Workers::LetPeersSpeak(TimePoint now) {
  for (int i = 0; i < count(); ++i) {
    if (IsRunning(i) && Of(i).can_be_kept) return;
  }
  if (!peers_until_.has_value()) {
    peers_limit_ = now + kPeersSpeakMax;
    for (int i = 0; i < count(); ++i) {
      if (IsRunning(i)) progress_.AskPlace(i);
    }
  }
  peers_until_ = std::min(now + kPeersSpeakTimeout, peers_limit_);
}

std::future<DumpedPlaces> Workers::ReadDumps(const std::vector<int>& local_ranks,
                                             std::chrono::milliseconds limit, int ended) const {
  std::vector<DumpQuestion> questions;
  for (const int local_rank : local_ranks) {
    const FlightFiles& files = Of(local_rank).flight;
    if (files.dump.empty()) continue;
    questions.push_back({.local_rank = local_rank,
                         .dump = files.dump,
                         .pipe = IsRunning(local_rank) ? files.pipe : "",
                         .since = round_started_on_wall_,
                         .copy = RankFile(local_rank, "flight_recorder.pickle")});
  }
  if (questions.empty()) return {};
  return background_.Start<DumpedPlaces>([questions = std::move(questions), limit, ended] {
    return ddprun::ReadDumps(questions, limit, ended);
  });
}

// NCCL's watchdog dumps before it aborts, and the program's own end may follow a dump too.
void Workers::ReadDumpsOfFailure(int local_rank, TimePoint now) {
  if (dumps_.valid() || !places_.missing) return;
  const std::vector<int> missing = places_.missing();
  if (std::find(missing.begin(), missing.end(), local_rank) == missing.end()) return;
  dumps_ = ReadDumps(missing, kPeersSpeakMax, local_rank);
  dumps_deadline_ = now + kPeersSpeakMax + kDiskAnswerTimeout;
}

std::optional<TimePoint> Workers::EvidenceDeadline() const {
  if (dumps_.valid()) return dumps_deadline_;
  return peers_until_.has_value() ? peers_until_ : evidence_.NextDeadline();
}

void Workers::ReleaseEvidence(TimePoint now, std::vector<Event>& events) {
  if (dumps_.valid()) {
    const std::optional<DumpedPlaces> places = TakeResult(dumps_);
    if (!places.has_value() && !stopping_ && now < dumps_deadline_) return;
    dumps_ = {};
    if (places.has_value() && !places->empty()) {
      places_.on_dumps(*places);
      evidence_.SetPlaces(places_.now());
    }
  }
  if (peers_until_.has_value()) {
    bool any_runs = false;
    for (int i = 0; i < count(); ++i) any_runs = any_runs || IsRunning(i);
    if (any_runs && !stopping_ && now < *peers_until_) return;
    peers_until_.reset();
    evidence_.SetPlaces(places_.now());
  }
  evidence_.Release(now, events);
}

}  // namespace ddprun
