// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/sim_agent.h"

#include <csignal>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// Limits for workers that do as they are told, until they have ended.
constexpr std::chrono::milliseconds kTermMax{300};
constexpr std::chrono::milliseconds kKillMax{5};
constexpr int kPortFirst = 20'000;
// A host that is in many runs, and an exit code that a process would turn into 0.
constexpr char kForgedHost[] = "n0";
constexpr int kForgedExitCode = 256;

void Forge(Failure& failure) {
  failure.host = kForgedHost;
  failure.node_rank = 0;
  if (failure.kind == FailureKind::kWorkerExited) failure.exit_code = kForgedExitCode;
}

// What a node might send to blame another one, or to end the run.
Report Forged(Report report) {
  if (auto* failed = std::get_if<WorkerFailed>(&report)) Forge(failed->failure);
  if (auto* leave = std::get_if<Leave>(&report)) {
    Forge(leave->reason);
    leave->close_run = true;
  }
  return report;
}

}  // namespace

SimAgent::SimAgent(SimClock& clock, SimRunNetwork& network, Place place,
                   const SimSettings& settings, const SimNodeSettings& node, SimRandom random,
                   Invariants& invariants, SimTraining& training, SimTrace& trace,
                   Handlers handlers)
    : clock_(clock),
      network_(network),
      place_(std::move(place)),
      settings_(settings),
      node_(node),
      random_(random),
      invariants_(invariants),
      training_(training),
      trace_(trace),
      handlers_(std::move(handlers)) {
  config_ = {.host = place_.host,
             .service = "service:29500",
             .hosts_service = settings.hosted && place_.host == "n0",
             .join_timeout = settings.join_timeout,
             .shutdown_timeout = settings.term_timeout,
             .restart_timeout = settings.term_timeout};
}

void SimAgent::Begin() {
  network_.Start(place_.self, this);
  Join join;
  join.protocol_version = node_.version;
  join.software_version = kSoftwareVersion;
  join.run_id = "run";
  join.node_id = place_.id;
  join.host = place_.host;
  join.node_rank = node_.rank;
  join.local_world_size = node_.workers;
  join.nodes_min = settings_.nodes_min;
  join.nodes_max = settings_.nodes_max;
  join.restarts_max = settings_.restarts;
  join.restart_policy = settings_.restart_policy;
  join.hosts_service = config_.hosts_service;
  join.address = place_.host;
  join.worker_port = kPortFirst + static_cast<int>(random_.Below(kPortFirst));
  join.join_timeout = settings_.join_timeout;
  join.last_call = settings_.last_call;
  join.lease = settings_.lease;
  join.hosts_service = config_.hosts_service;
  join.hears_preemption = true;
  join.rank_order = settings_.rank_order;
  join.topology = node_.topology;
  session_ = std::make_unique<SimSession>(
      clock_, network_, place_.self, place_.service, std::move(join), settings_.join_timeout,
      [this](SessionEvent event) { OnSession(std::move(event)); });
  session_->Begin();
}

// ---- The loop

void SimAgent::OnConnected(SimStream stream) {
  if (!end_) session_->OnConnected(stream);
}

void SimAgent::OnMessage(SimStream stream, SimMessage message) {
  if (end_) return;
  if (!session_->OnMessage(stream, message) && store_ != nullptr)
    store_->OnMessage(stream, message);
}

void SimAgent::OnClosed(SimStream stream) {
  if (end_) return;
  if (!session_->OnClosed(stream) && store_ != nullptr) store_->OnClosed(stream);
}

void SimAgent::OnSession(SessionEvent event) {
  if (end_) return;
  if (store_ != nullptr && std::holds_alternative<Reconnected>(event)) store_->ServiceIsBack();
  if (store_ != nullptr && std::holds_alternative<SessionEnded>(event)) {
    store_->Fail(absl::UnavailableError("the node's session ended"));
  }
  auto* directive = std::get_if<Directive>(&event);
  if (directive != nullptr) {
    if (const auto* accepted = std::get_if<Accepted>(directive)) {
      heartbeat_ = accepted->heartbeat;
      heartbeat_due_ = heartbeat_.count() > 0 ? std::optional(Now() + heartbeat_) : std::nullopt;
      reconnect_timeout_ =
          accepted->durable ? std::chrono::milliseconds(kReconnectTimeout) : accepted->lease;
    }
    // A cause that is known later may be worth a restart.
    if (const auto* stop = std::get_if<Stop>(directive)) told_last_ = told_last_ || stop->last;
    std::visit(
        [this](auto& kind) {
          using Kind = std::decay_t<decltype(kind)>;
          // Nobody watches a simulated run, or asks it for faults, and it serves no TCPStore.
          if constexpr (!std::is_same_v<Kind, LogWatches> && !std::is_same_v<Kind, LogsTaken> &&
                        !std::is_same_v<Kind, Fault> && !std::is_same_v<Kind, OwnerQueries> &&
                        !std::is_same_v<Kind, OwnerAnswers> &&
                        !std::is_same_v<Kind, ConnectionRefused>) {
            Post(std::move(kind));
          }
        },
        *directive);
  } else {
    std::visit(
        [this](auto& kind) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(kind)>, Directive>)
            Post(std::move(kind));
        },
        event);
  }
  Process();
}

void SimAgent::GiveNotice(std::chrono::milliseconds remaining) {
  Post(NoticeGiven{.remaining = remaining, .reason = "SIGUSR1"});
  Process();
}

void SimAgent::WithdrawNotice() {
  Post(NoticeWithdrawn{"SIGUSR1"});
  Process();
}

void SimAgent::TellSaved() {
  if (!has_workers() || state_.notice_number == 0) return;
  Post(WorkersSaved{state_.notice_number});
  Process();
}

void SimAgent::Signal(int signal) {
  Post(SignalReceived{signal});
  Process();
}

void SimAgent::Process() {
  while (!events_.empty()) {
    const std::vector<Event> events = std::exchange(events_, {});
    for (const Event& event : events) {
      for (const Effect& effect : Step(state_, event, Now(), config_)) Perform(effect);
      if (end_) return;
    }
  }
  Arm();
}

void SimAgent::BeatIfDue() {
  if (!heartbeat_due_ || Now() < *heartbeat_due_) return;
  session_->Send(Heartbeat{});
  heartbeat_due_ = Now() + heartbeat_;
}

void SimAgent::Arm() {
  std::optional<TimePoint> next = NextDeadline(state_);
  if (heartbeat_due_ && (!next || *heartbeat_due_ < *next)) next = heartbeat_due_;
  if (next == armed_) return;
  clock_.Cancel(timer_);
  armed_ = next;
  if (!next) return;
  timer_ = clock_.At(
      *next - node_.skew,
      [this] {
        armed_.reset();
        BeatIfDue();
        const auto due = NextDeadline(state_);
        if (due && *due <= Now()) Post(DeadlinePassed{});
        Process();
      },
      network_.Timers(place_.self));
}

void SimAgent::Perform(const Effect& effect) {
  if (const auto* spawn = std::get_if<SpawnRound>(&effect)) {
    Spawn(spawn->start);
  } else if (std::holds_alternative<ParkWorkers>(effect)) {
    Park();
  } else if (const auto* terminate = std::get_if<TerminateWorkers>(&effect)) {
    SignalWorkers(/*kill=*/false, terminate->keep);
  } else if (const auto* kill = std::get_if<KillWorkers>(&effect)) {
    SignalWorkers(/*kill=*/true, kill->keep);
  } else if (const auto* send = std::get_if<SendReport>(&effect)) {
    trace_.Report(clock_.now(),
                  [&] { return absl::StrCat(place_.id.value, " says: ", WordsOf(send->report)); });
    session_->Send(node_.forges != 0 ? Forged(send->report) : send->report);
  } else if (const auto* stopped = std::get_if<ReportStopped>(&effect)) {
    trace_.Report(clock_.now(), [&] {
      return absl::StrCat(place_.id.value, " has stopped round ", ToNumber(stopped->round));
    });
    session_->Send(NodeStopped{
        stopped->round, kPortFirst + static_cast<int>(random_.Below(kPortFirst)), stopped->ends});
  } else if (const auto* tell = std::get_if<TellNotice>(&effect)) {
    notes_.push_back(
        absl::StrCat("notice ", tell->preemption.number, ": ", ToSentence(tell->preemption)));
    trace_.Report(clock_.now(), [&] {
      return absl::StrCat(place_.id.value, " tells its workers: ", notes_.back());
    });
  } else if (const auto* note = std::get_if<PrintNote>(&effect)) {
    trace_.Report(clock_.now(),
                  [&] { return absl::StrCat(place_.id.value, " prints: ", note->text); });
    notes_.push_back(note->text);
  } else if (const auto* end = std::get_if<End>(&effect)) {
    end_ = *end;
    trace_.Report(clock_.now(), [&] {
      return absl::StrCat(place_.id.value, " ends with ", end->exit_code, ": ", end->text);
    });
    invariants_.Ended(place_.id, end->text);
    session_->Close();
    if (store_ != nullptr) store_->Close();
    training_.EndAllOf(place_.id);
    handlers_.ended();
  }
}

// ---- The workers

void SimAgent::Spawn(const Start& start) {
  trace_.Report(clock_.now(), [&] {
    return absl::StrCat(place_.id.value, " starts the workers of round ", ToNumber(start.round),
                        ", rank ", start.rank_first, " and on, of ", start.world_size);
  });
  invariants_.WorkersStarted(place_.id, start);
  if (stopped_kept_) invariants_.KeptWorkersWereStopped(place_.id, start);
  ++spawned_;
  if (store_ == nullptr) {
    store_ = std::make_unique<SimStore>(
        clock_, network_, place_.self, place_.service, place_.id.value, node_.skew,
        [this](StoreWorker worker, std::uint64_t, const StoreResult& result) {
          Answer(worker, result);
        });
  }
  store_->SetReconnectTimeout(reconnect_timeout_);
  store_->SetRound(start.round);
  const std::vector<Worker> before = std::exchange(
      workers_, std::vector<Worker>(static_cast<std::size_t>(node_.workers), Worker{}));
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    const bool kept = i < before.size() && before[i].lives && before[i].left;
    worker.lives = true;
    worker.process = kept ? before[i].process : ++last_process_;
    worker.ignores_term = kept ? before[i].ignores_term : random_.Chance(settings_.hang);
    worker.since = clock_.now();
    worker.id = StoreWorker{++last_worker_};
    worker.script.emplace(start.round, start.rank_first + static_cast<int>(i), start.world_size,
                          random_.Fork());
    worker.end = clock_.After(
        worker.script->Pause(), [this, i] { Ask(i, nullptr); }, network_.Timers(place_.self));
  }
  if (!settings_.keep) return;
  clock_.After(
      random_.Between(Duration(1), kTermMax),
      [this, round = start.round] {
        if (end_ || !state_.workers_live || state_.round->round != round) return;
        Post(WorkersCanBeKept{true});
        Process();
      },
      network_.Timers(place_.self));
}

void SimAgent::Park() {
  clock_.After(
      random_.Between(Duration(1), kTermMax),
      [this] {
        if (end_ || state_.phase != Phase::kWaiting) return;
        Post(WorkersCanBeKept{true});
        Process();
      },
      network_.Timers(place_.self));
}

// The next question some time after the last answer; after the last one the work itself.
void SimAgent::Ask(std::size_t index, const StoreResult* last) {
  Worker& worker = workers_[index];
  if (worker.script->has_met() && !worker.met) {
    worker.met = true;
    const Start& start = *state_.round;
    invariants_.Met(place_.id, start);
    training_.Enter(ProcessOf(worker), start, start.rank_first + static_cast<int>(index),
                    network_.Timers(place_.self));
  }
  std::optional<StoreOp> op = worker.script->Next(last);
  if (!op) {
    EndWorker(index, random_.Between(settings_.work, settings_.work + settings_.work / 4),
              Exited{0});
    return;
  }
  worker.asked = invariants_.Asked(place_.id, *op);
  store_->Submit(worker.id, ++last_question_, *std::move(op));
}

void SimAgent::Answer(StoreWorker id, const StoreResult& result) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.id != id || !IsInRound(worker) || !worker.asked) continue;
    invariants_.Answered(*worker.asked, result);
    worker.asked.reset();
    if (worker.dying) return;
    if (!result.status.ok() && !absl::IsNotFound(result.status)) {
      trace_.Report(clock_.now(), [&] {
        return absl::StrCat(place_.id.value, "'s store: ", result.status.message());
      });
      if (settings_.keep) return LeaveRound(i, std::string(result.status.message()));
      EndWorker(i, Duration(1), Exited{1});
      return;
    }
    worker.end = clock_.After(
        worker.script->Pause(), [this, i, result] { Ask(i, &result); },
        network_.Timers(place_.self));
    return;
  }
}

void SimAgent::EndWorker(std::size_t index, Duration after, Outcome outcome) {
  Worker& worker = workers_[index];
  if (!worker.lives) return;
  worker.dying = true;
  clock_.Cancel(worker.end);
  worker.end = clock_.After(
      after, [this, index, outcome = std::move(outcome)] { WorkerEnds(index, outcome); },
      network_.Timers(place_.self));
}

void SimAgent::WorkerEnds(std::size_t index, Outcome outcome, std::string message) {
  workers_[index].lives = false;
  training_.End(ProcessOf(workers_[index]));
  store_->WorkerGone(workers_[index].id);
  const bool failed = !IsSuccess(outcome);
  const Start start = *state_.round;
  WorkerEnded ended;
  ended.local_rank = static_cast<int>(index);
  ended.outcome = std::move(outcome);
  ended.pid = 1;
  ended.message = std::move(message);
  ended.stopped = workers_[index].stopped;
  Post(std::move(ended));
  ReportIfAllGone();
  Process();
  if (failed) handlers_.workers_died(start);
}

void SimAgent::ReportIfAllGone() {
  bool kept = false;
  for (const Worker& worker : workers_) {
    if (IsInRound(worker)) return;
    kept = kept || worker.lives;
  }
  invariants_.WorkersGone(place_.id);
  Post(AllGone{kept});
}

// As told, or by itself because of an error.
void SimAgent::LeaveRound(std::size_t index, std::string error) {
  Worker& worker = workers_[index];
  if (!IsInRound(worker)) return;
  clock_.Cancel(worker.end);
  store_->WorkerGone(worker.id);
  worker.asked.reset();
  worker.dying = false;
  worker.left = true;
  training_.Leave(ProcessOf(worker));
  if (!worker.stopped) {
    WorkerLeft left;
    left.local_rank = static_cast<int>(index);
    left.pid = 1;
    left.error = std::move(error);
    Post(std::move(left));
  }
  ReportIfAllGone();
  Process();
}

void SimAgent::SignalWorkers(bool kill, bool keep) {
  bool any = false;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    any = any || workers_[i].lives;
    if (keep && workers_[i].left) continue;
    workers_[i].stopped = true;
    if (keep && settings_.keep && !kill && workers_[i].lives && !workers_[i].ignores_term) {
      workers_[i].dying = true;
      clock_.Cancel(workers_[i].end);
      workers_[i].end = clock_.After(
          random_.Between(Duration(1), kTermMax), [this, i] { LeaveRound(i); },
          network_.Timers(place_.self));
      continue;
    }
    stopped_kept_ = stopped_kept_ || (settings_.keep && workers_[i].lives && !keep && !told_last_);
    if (!kill && workers_[i].ignores_term) {
      // It hangs.
      workers_[i].dying = true;
      clock_.Cancel(workers_[i].end);
      continue;
    }
    EndWorker(i, random_.Between(Duration(1), kill ? kKillMax : kTermMax),
              Signaled{kill ? SIGKILL : SIGTERM});
  }
  // Only parked ones were there.
  if (any) return;
  clock_.After(
      kKillMax,
      [this] {
        ReportIfAllGone();
        Process();
      },
      network_.Timers(place_.self));
}

std::optional<std::size_t> SimAgent::AnyWorker() const {
  for (std::size_t i = 0; state_.workers_live && i < workers_.size(); ++i) {
    if (IsInRound(workers_[i])) return i;
  }
  return std::nullopt;
}

void SimAgent::FailWorker(int exit_code, int signal) {
  const auto worker = AnyWorker();
  if (!worker) return;
  clock_.Cancel(workers_[*worker].end);
  WorkerEnds(*worker, signal != 0 ? Outcome(Signaled{signal}) : Outcome(Exited{exit_code}));
}

void SimAgent::TellProgress(std::int64_t step) {
  if (!AnyWorker() || state_.phase != Phase::kRunning) return;
  Heartbeat heartbeat;
  heartbeat.progress_round = state_.round->round;
  heartbeat.progress.step = step;
  session_->Send(heartbeat);
}

void SimAgent::BreakCollective(RoundId round) {
  const auto worker = AnyWorker();
  if (!worker || state_.round->round != round) return;
  if (settings_.keep) return LeaveRound(*worker, std::string(kBrokenCollectiveWords));
  clock_.Cancel(workers_[*worker].end);
  WorkerEnds(*worker, Exited{1}, std::string(kBrokenCollectiveWords));
}

void SimAgent::Crashed() {
  invariants_.WorkersGone(place_.id);
  training_.EndAllOf(place_.id);
  if (state_.workers_live) handlers_.workers_died(*state_.round);
}

}  // namespace ddprun
