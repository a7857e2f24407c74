// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/workers.h"

#include <csignal>
#include <map>
#include <variant>

#include "launcher/base/limits.h"
#include "launcher/placement/role_ranks.h"
#include "launcher/placement/worker_environ.h"
#include "launcher/processes/process_stat.h"
#include "rendezvous/base/overloaded.h"

namespace ddprun {
namespace {

std::shared_ptr<ForkServer> StartForkServer(const NodeConfig& config, const rlimit& file_limit,
                                            const Background& background) {
  if (config.options.preload.empty()) return nullptr;
  Place place;
  place.threads = config.places.front().threads;
  return ForkServer::Start({.modules = config.options.preload,
                            .program = config.programs.front(),
                            .environ = CommonEnviron(OwnEnviron(), place),
                            .folder = config.temp_dir + "/preload",
                            .signal_mask = config.worker_signal_mask,
                            .file_limit = file_limit},
                           background.Waker());
}

}  // namespace

Workers::Workers(const NodeConfig& config, Poller& poller, Console& console,
                 const Background& background)
    : config_(config),
      background_(background),
      console_(console),
      table_(config, poller, console),
      requests_(config, table_, console),
      fork_server_(StartForkServer(config, table_.file_limit(), background)),
      sweep_(table_, fork_server_),
      round_start_(config, table_, requests_, sweep_.cgroup(), console, background, fork_server_),
      spares_(config, table_, requests_, sweep_.cgroup(), background, fork_server_),
      stop_signals_(config, table_, requests_),
      notices_(config, table_),
      hang_watch_(config.options.hangs),
      autopsy_(hang_watch_),
      evidence_(background) {}

void Workers::EndForkServer() {
  if (fork_server_ != nullptr) fork_server_->Stop();
}

SparePool::Node Workers::NodeState() const {
  using Node = SparePool::Node;
  if (stopping_ == Stopping::kAll || round_start_.is_underway()) return Node::kBusy;
  if (!round_live_) return Node::kIdle;
  return stopping_ == Stopping::kNo ? Node::kRunning : Node::kBusy;
}

void Workers::OnTurn(TimePoint now, std::vector<Event>& events) {
  if (fork_server_ != nullptr) {
    for (const std::string& note : fork_server_->TakeNotes())
      console_.WriteLine(OutputStream::kErr, note);
  }
  for (AutopsyEvent& event : evidence_.Take()) Examine(std::move(event), now, events);
  const auto due = Earliest({sweep_.NextDeadline(), spares_.NextDeadline()});
  if (awaits_evidence_ || (due.has_value() && *due <= now)) FinishIfAllGone(now, events);
  ContinueSpawn(now, events);
  if (const auto parked = spares_.TakeParked(/*kill=*/stopping_ == Stopping::kAll)) {
    // One that was killed while it waited for its program must not count as one that is kept.
    ReapWorker(*parked, now, events);
    FinishIfAllGone(now, events);
  }
  notices_.Signal(round_live_ && stopping_ == Stopping::kNo, now);
  if (const auto all = spares_.TakeKeeping(NodeState())) events.push_back(WorkersCanBeKept{*all});
  spares_.OnTurn(NodeState());
  Examine(TimePassed{}, now, events);
}

std::optional<TimePoint> Workers::NextDeadline() const {
  return Earliest({sweep_.NextDeadline(), round_start_.NextDeadline(), autopsy_.NextDeadline(),
                   notices_.NextDeadline(), spares_.NextDeadline()});
}

// ---- Starting

void Workers::Spawn(const Start& start, const std::vector<std::string>& network, TimePoint now,
                    std::vector<Event>& events) {
  round_started_ = now;
  round_started_on_wall_ = std::chrono::system_clock::now();
  round_live_ = true;
  stopping_ = Stopping::kNo;
  requests_.BeginRound(start, network);
  table_.BeginRound(start.rank_first);
  stop_signals_.BeginRound();
  autopsy_.BeginRound(start.rank_first);
  spares_.BeginRound();
  oom_watch_.Begin();
  if (fork_server_ != nullptr) fork_server_->BeginRound();
  for (int i = 0; i < table_.size(); ++i) {
    const bool stays = table_.IsLive(i) && table_[i].left;
    const std::optional<int> spare = stays ? std::nullopt : spares_.ReadyFor(i);
    if (spare.has_value()) spares_.Take(i, *spare);
    if (stays || spare.has_value()) {
      table_.Carry(i);
    } else {
      table_.Vacate(i);
    }
  }
  const absl::Status status = round_start_.Begin(now);
  if (!status.ok()) FailToSpawn(std::string(status.message()), now, events);
  ContinueSpawn(now, events);
}

void Workers::ContinueSpawn(TimePoint now, std::vector<Event>& events) {
  auto started = round_start_.OnTurn(now);
  if (!started.ok()) {
    FailToSpawn(std::string(started.status().message()), now, events);
  } else if (started->has_value()) {
    OnStarted(**std::move(started), now, events);
  }
}

void Workers::OnStarted(std::vector<RoundStart::Started> started, TimePoint now,
                        std::vector<Event>& events) {
  newly_started_ = true;
  for (RoundStart::Started& one : started) {
    // It was asked to end before it began.
    if (!deferred_stops_.empty()) table_[one.local_rank].asked = Asked::kToLeave;
    table_.Adopt(one.local_rank, std::move(one.process));
  }
  for (const RoundStart::Started& one : started) {
    if (!table_.IsLive(one.local_rank))
      AddEnded(one.local_rank, std::nullopt, std::nullopt, now, events);
  }
  ReapHeld(now, events);  // SIGCHLD may have come before they were watched
  for (const int signal : std::exchange(deferred_forwards_, {})) Forward(signal);
  for (const DeferredStop& stop : std::exchange(deferred_stops_, {}))
    stop_signals_.Send(stop.signal, stop.keep);
  FinishIfAllGone(now, events);
}

void Workers::FailToSpawn(const std::string& reason, TimePoint now, std::vector<Event>& events) {
  round_start_.GiveUp();
  deferred_stops_.clear();
  deferred_forwards_.clear();
  // Those that were told of no round are as if they had left it.
  for (int i = 0; i < table_.size(); ++i) table_[i].left = table_[i].carried;
  WorkerEnded ended;
  ended.outcome = SpawnFailed{126, reason};
  events.push_back(std::move(ended));
  FinishIfAllGone(now, events);
}

// ---- What workers report

std::optional<ProgressMessage> Workers::ReadMessage(int worker) {
  std::optional<ProgressMessage> message = table_.progress().Read(worker);
  if (!message.has_value() || !message->place.has_value()) return message;
  // Ranks of different roles are in different process groups of the same names.
  const std::string role = requests_.CountingRole(table_.StandsFor(worker));
  if (!role.empty()) AddRole(role, *message->place);
  return message;
}

std::optional<ProgressMessage> Workers::ReadProgress(int worker, TimePoint now,
                                                     std::vector<Event>& events) {
  std::optional<ProgressMessage> message = ReadMessage(worker);
  if (!message.has_value()) return std::nullopt;
  const bool is_parked = table_.IsParked(worker);
  if (message->can_be_kept.has_value()) {
    table_[worker].can_be_kept = *message->can_be_kept;
    if (is_parked) spares_.OnReport();
  }
  if (message->hears_notices) {
    table_[worker].hears_notices = true;
    notices_.Tell(worker, now);
  }
  if (is_parked || OnlyHears(*message)) return std::nullopt;
  if (message->saved_notice.has_value() && notices_.OnSaved(worker, *message->saved_notice)) {
    if (const auto saved = notices_.SavedByAll(now)) events.push_back(WorkersSaved{*saved});
  }
  if (message->left_round == ToNumber(requests_.start().round))
    OnLeft(worker, *message, now, events);
  if (!round_live_ || table_[worker].left) return std::nullopt;
  return message;
}

void Workers::OnLeft(int local_rank, const ProgressMessage& message, TimePoint now,
                     std::vector<Event>& events) {
  Worker& worker = table_[local_rank];
  if (!round_live_ || worker.left || !table_.IsLive(local_rank)) return;
  worker.left = true;
  if (worker.asked == Asked::kNothing) {
    WorkerLeft left;
    left.local_rank = local_rank;
    left.pid = *table_.pid(local_rank);
    left.age = AgeAt(now);
    left.error = message.error.value_or("");
    left.last_lines = logs().feed().LastLinesOf(local_rank);
    // A message without a place leaves the one that it has reported before.
    Examine(LeaveSeen{std::move(left), message.place ? std::optional(message) : std::nullopt}, now,
            events);
  }
  FinishIfAllGone(now, events);
}

std::future<DumpedPlaces> Workers::ReadDumps(const std::vector<int>& local_ranks,
                                             std::chrono::milliseconds limit, int ended) const {
  std::vector<DumpQuestion> questions;
  std::map<int, std::string> roles;
  for (const int local_rank : local_ranks) {
    const FlightFiles& files = table_[local_rank].flight;
    if (files.dump.empty()) continue;
    roles[local_rank] = requests_.CountingRole(local_rank);
    questions.push_back({.local_rank = local_rank,
                         .dump = files.dump,
                         .pipe = table_.IsRunning(local_rank) ? files.pipe : "",
                         .since = round_started_on_wall_,
                         .copy = round_start_.RankFile(local_rank, "flight_recorder.pickle")});
  }
  if (questions.empty()) return {};
  return background_.Start<DumpedPlaces>(
      [questions = std::move(questions), roles = std::move(roles), limit, ended] {
        DumpedPlaces places = ddprun::ReadDumps(questions, limit, ended);
        for (auto& [local_rank, place] : places) {
          const std::string& role = roles.at(local_rank);
          if (!role.empty()) AddRole(role, place);
        }
        return places;
      });
}

// ---- Ends

void Workers::OnReady(const Ready& ready, TimePoint now, std::vector<Event>& events) {
  if (ready.source == Source::kWorkerEnd) return TakeEnded(now, events);
  const OutputStream stream =
      ready.source == Source::kWorkerOut ? OutputStream::kOut : OutputStream::kErr;
  logs().Read(ready.worker, stream, now);  // epoll drops a closed pipe
}

void Workers::OnChildEnded(TimePoint now, std::vector<Event>& events) {
  ReapHeld(now, events);
  // Processes of the spawners are not known here yet.
  if (round_start_.is_underway() || spares_.IsStarting()) return;
  FinishIfAllGone(now, events);
  sweep_.ReapStrangers();
}

void Workers::TakeEnded(TimePoint now, std::vector<Event>& events) {
  ReapHeld(now, events);
  bool any = true;
  while (any) {
    any = false;
    for (const Ready& ready : table_.TakeEnds()) any = ReapWorker(ready.worker, now, events) || any;
  }
  FinishIfAllGone(now, events);
}

void Workers::ReapHeld(TimePoint now, std::vector<Event>& events) {
  for (const int worker : table_.held()) ReapWorker(worker, now, events);
}

bool Workers::ReapWorker(int worker, TimePoint now, std::vector<Event>& events) {
  std::optional<OomKill> oom;
  std::optional<double> cpu_seconds;
  const std::optional<Outcome> outcome = table_.Look(worker);
  const auto* signaled = outcome.has_value() ? std::get_if<Signaled>(&*outcome) : nullptr;
  if (signaled != nullptr && signaled->signal == SIGKILL &&
      !stop_signals_.Caused(worker, *outcome)) {
    oom = oom_watch_.Explain(*table_.pid(worker));
    cpu_seconds = CpuSecondsOf(*table_.pid(worker));
  }
  const bool is_parked = table_.IsParked(worker);
  if (!table_.Reap(worker, /*spares_group=*/stopping_ == Stopping::kNo && !is_parked)) return false;
  logs().Drain(worker, now);
  if (is_parked) {
    spares_.OnEnded(worker, /*asked=*/stopping_ == Stopping::kAll);
  } else {
    AddEnded(worker, std::move(oom), cpu_seconds, now, events);
  }
  return true;
}

void Workers::AddEnded(int local_rank, std::optional<OomKill> oom,
                       std::optional<double> cpu_seconds, TimePoint now,
                       std::vector<Event>& events) {
  const Worker& worker = table_[local_rank];
  EndSeen seen;
  WorkerEnded& ended = seen.ended;
  ended.local_rank = local_rank;
  ended.outcome = *table_.outcome(local_rank);
  ended.pid = table_.pid(local_rank).value_or(0);
  ended.age = AgeAt(now);
  ended.oom = std::move(oom);
  ended.asked_by = worker.asked_by;
  ended.last_lines = logs().feed().LastLinesOf(local_rank);
  ended.stopped = !IsSuccess(ended.outcome) && stop_signals_.Caused(local_rank, ended.outcome);
  seen.message = ReadMessage(local_rank);
  seen.was_failing = worker.asked == Asked::kWhileFailing;
  seen.watches_collectives = requests_.watches_collectives();
  seen.question = {.record_file = worker.error_file,
                   .pid = ended.pid,
                   .core_of_start = worker.started_on_wall,
                   .cpu_seconds = cpu_seconds,
                   .is_python = config_.program_of(local_rank).is_python};
  Examine(std::move(seen), now, events);
}

void Workers::Examine(AutopsyEvent event, TimePoint now, std::vector<Event>& events) {
  Autopsy::Peers peers{.stopping = stopping_ != Stopping::kNo};
  for (int i = 0; i < table_.size(); ++i) {
    peers.any_runs |= table_.IsRunning(i);
    peers.any_can_be_kept |= table_.IsRunning(i) && table_[i].can_be_kept;
  }
  for (AutopsyEffect& effect : autopsy_.Step(std::move(event), peers, now)) {
    std::visit(Overloaded{[&](AskPlaces&) {
                            for (int i = 0; i < table_.size(); ++i) {
                              if (table_.IsRunning(i)) table_.progress().AskPlace(i);
                            }
                          },
                          [&](ReadFlightDumps& wanted) {
                            auto dumps =
                                ReadDumps(wanted.local_ranks, kPeersSpeakMax, wanted.ended);
                            if (!dumps.valid()) return Examine(DumpsRead{}, now, events);
                            evidence_.Begin(std::move(dumps));
                          },
                          [&](ReadEvidence& question) { evidence_.Begin(std::move(question)); },
                          [&](KeepRecord& keep) { logs().KeepRecord(keep.local_rank, keep.bytes); },
                          [&](ReportEvent& report) { events.push_back(std::move(report.event)); }},
               effect);
  }
}

void Workers::FinishIfAllGone(TimePoint now, std::vector<Event>& events) {
  if (!round_live_ || round_start_.is_underway()) return;
  for (int i = 0; i < table_.count(); ++i) {
    if (stopping_ == Stopping::kAll ? table_.IsLive(i) : table_.IsRunning(i)) return;
  }
  if (spares_.WaitsForStart(now)) return;
  const bool kept = table_.AnyKept();
  const bool has_grace = stopping_ == Stopping::kNo && table_.AllSucceeded();
  if (!sweep_.Run(
          has_grace ? std::optional(config_.options.stopping.leftover_timeout) : std::nullopt, kept,
          now, events))
    return;
  // Reports the ends before the end of the round.
  Examine(TimePassed{}, now, events);
  awaits_evidence_ = !autopsy_.empty();
  if (awaits_evidence_) return;
  logs().EndRound(table_.Kept(), now);  // epoll drops closed pipes
  sweep_.End(kept);
  for (int i = 0; i < table_.count(); ++i) {
    if (table_.IsLive(i)) continue;
    table_.progress().Close(i);
    RemoveFlightFiles(std::exchange(table_[i].flight, {}));
  }
  round_live_ = false;
  events.push_back(AllGone{kept});
}

// ---- Stopping

void Workers::Stop(int signal, bool keep, TimePoint now, std::vector<Event>& events) {
  // Kept and parked ones end like those of a round.
  if (!keep && stopping_ != Stopping::kAll) {
    stopping_ = Stopping::kAll;
    round_live_ = true;
  }
  if (stopping_ == Stopping::kNo) stopping_ = Stopping::kKeeping;
  sweep_.OnStop(signal, now);
  if (!round_live_) return;
  if (fork_server_ != nullptr && fork_server_->IsLoading()) {
    // Its modules may take long, and the workers that wait for them are not needed any more.
    round_start_.Cancel();
    if (!keep) spares_.Cancel();
  }
  if (round_start_.is_underway()) return deferred_stops_.push_back({signal, keep});
  TakeEnded(now, events);
  stop_signals_.Send(signal, keep);
  FinishIfAllGone(now, events);
}

void Workers::Kill(bool keep, TimePoint now, std::vector<Event>& events) {
  if (!keep) spares_.GiveUp();
  Stop(SIGKILL, keep, now, events);
  for (int i = 0; i < table_.size(); ++i) {
    // Asked to leave the round, it has not.
    if (keep && table_.IsRunning(i)) table_.SignalGroup(i, SIGKILL);
  }
  if (!keep || !table_.AnyKept()) sweep_.cgroup().Kill();
  if (round_start_.step() != RoundStart::Step::kProcesses) return;
  round_start_.Cancel();
  sweep_.KillStrangers();
}

void Workers::KillOne(int local_rank, TimePoint now, std::vector<Event>& events) {
  if (!round_live_) return;
  TakeEnded(now, events);
  if (table_.IsLive(local_rank)) stop_signals_.Kill(local_rank);
}

void Workers::Forward(int signal) {
  if (round_start_.is_underway()) return deferred_forwards_.push_back(signal);
  for (int i = 0; i < table_.size(); ++i) table_.SignalProcess(i, signal);
}

void Workers::ReportStuck() {
  round_start_.ReportStuck();
  for (int i = 0; i < table_.count(); ++i) {
    if (table_.IsLive(i)) table_.ReportStuck(*table_.pid(i), kKillTimeout);
  }
}

}  // namespace ddprun
