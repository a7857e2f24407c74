// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/agent.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <random>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/base/signals.h"
#include "launcher/node/network.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

OwnedFd OpenSignalFd(const sigset_t& signals) {
  return OwnedFd(signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
}

}  // namespace

NodeId MakeNodeId(const std::string& host) {
  std::random_device random;
  return NodeId{absl::StrFormat("%s-%d-%08x", host, getpid(), random())};
}

Agent::Agent(Config config)
    : config_(std::move(config)),
      console_(STDOUT_FILENO, STDERR_FILENO, Console::kLimits,
               config_.control_pipe.has_value() ? Console::Form::kMarked : Console::Form::kPlain),
      workers_(config_, poller_, console_, background_),
      watch_(config_.options.hangs, workers_, poller_, console_),
      notice_file_(config_.options.stopping.notices.file, config_.options.stopping.notices.grace,
                   background_),
      stdin_pump_(MakeStdinPump()),
      signal_fd_(OpenSignalFd(WithChildSignal(
          Union(config_.end_signals, Union(config_.forwarded_signals, config_.notice_signals))))),
      guard_fds_(config_.guard_fds.begin(), config_.guard_fds.end()),
      owners_(background_, [this] { session_events_.Wake(); }) {
  config_.worker_stdin = stdin_pump_.worker_end();
}

Agent::~Agent() = default;

absl::Status Agent::WatchSources() {
  bool all = poller_.Add(signal_fd_.get(), {Source::kSignal}) &&
             poller_.Add(session_events_.fd(), {Source::kSession}) &&
             poller_.Add(workers_.table().ends_fd(), {Source::kWorkerEnd}) &&
             poller_.Add(background_.fd(), {Source::kBackground}) &&
             poller_.Add(workers_.logs().notice_fd(), {Source::kLogNotice}) &&
             poller_.Add(console_.notice_fd(), {Source::kLogNotice});
  for (const OwnedFd& guard : guard_fds_) all = all && poller_.Add(guard.get(), {Source::kWarden});
  if (config_.control_pipe.has_value())
    all = all && poller_.Add(config_.control_pipe->fd(), {Source::kControlPipe});
  if (all) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot watch signals and workers: ", ErrnoText(errno)));
}

int Agent::Run() {
  absl::Status status = WatchSources();
  if (status.ok() && config_.control_pipe.has_value()) HandleControlPipe(false);
  if (status.ok()) status = Open();
  if (!status.ok()) {
    ShowEnd(End{1, absl::StrCat("ddprun: ", status.message(), "\n"), std::nullopt});
    exit_code_ = 1;
  } else {
    Loop();
  }
  Close();
  return *exit_code_;
}

// ---- The loop

void Agent::Loop() {
  while (true) {
    TimePoint now = Now();
    Process(now);
    if (exit_code_.has_value()) return;
    if (workers_.TakeStarted()) OnWorkersStarted(now);
    ShowRefusals(now);
    console_.Pump();
    console_.WatchReaders(poller_);
    const bool round_runs = state_.phase == Phase::kRunning;
    const std::vector<Ready> ready = poller_.Wait(
        Earliest({NextDeadline(state_), workers_.NextDeadline(), workers_.logs().NextDeadline(),
                  watch_.NextDeadline(round_runs), NextJoinDeadline(), heartbeat_due_,
                  observer_.NextDeadline(), faults_.NextDeadline(), notice_file_.NextDeadline(),
                  stdin_pump_.NextDeadline(), owners_.NextDeadline()}));
    now = Now();
    for (const Ready& one : ready) HandleReady(one, now);
    ContinueJoin(now);
    faults_.OnTurn(now);
    LookForNotice(now);
    SendOwners(now);
    stdin_pump_.OnTurn(poller_, now);
    workers_.OnTurn(now, events_);
    if (workers_.TakeStarted()) OnWorkersStarted(now);
    workers_.logs().OnDeadline(now);
    watch_.OnTurn(now, round_runs, events_);
    if (auto stacks = watch_.TakeStacks(now); stacks.has_value() && session_ != nullptr)
      session_->Send(*std::move(stacks));
    SendHeartbeatIfDue(now);
    const std::optional<TimePoint> due = NextDeadline(state_);
    if (due.has_value() && *due <= now) events_.push_back(DeadlinePassed{});
  }
}

void Agent::ShowRefusals(TimePoint now) {
  const std::optional<std::string> line = observer_.TakeRefusals(now);
  if (line.has_value()) Print(*line);
}

void Agent::HandleReady(const Ready& ready, TimePoint now) {
  switch (ready.source) {
    case Source::kSession:
      return HandleSession(now);
    case Source::kSignal:
      return HandleSignals(now);
    case Source::kControlPipe:
      return HandleControlPipe(true);
    case Source::kWarden:
      for (const OwnedFd& guard : guard_fds_) poller_.Remove(guard.get());
      events_.push_back(WardenLost{});
      return;
    case Source::kWorkerOut:
    case Source::kWorkerErr:
      watch_.OnOutput(ready.worker, now);
      return workers_.OnReady(ready, now, events_);
    case Source::kWorkerEnd:
      return workers_.OnReady(ready, now, events_);
    case Source::kWorkerProgress:
      if (const auto message = workers_.ReadProgress(ready.worker, now, events_))
        watch_.OnProgress(ready.worker, *message, now);
      return;
    case Source::kStdin:
      return stdin_pump_.OnReady();
    case Source::kStacks:
      return;  // handled in each turn of the loop
    case Source::kConsole:
      return;  // written in each turn of the loop
    case Source::kBackground:
      return background_.ClearNotice();  // handled in each turn of the loop
    case Source::kLogNotice:
      workers_.logs().ShowNotices();
      return console_.ShowNotices();
  }
}

void Agent::HandleSignals(TimePoint now) {
  signalfd_siginfo info;
  while (read(signal_fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      workers_.OnChildEnded(now, events_);
    } else {
      TakeSignal(number);
    }
  }
}

void Agent::TakeSignal(int number) {
  if (sigismember(&config_.forwarded_signals, number) == 1) {
    workers_.Forward(number);
  } else if (sigismember(&config_.notice_signals, number) == 1) {
    events_.push_back(NoticeGiven{config_.options.stopping.notices.grace, SignalName(number)});
  } else {
    const std::vector<int>& named = config_.options.stopping.end_signals;
    const bool is_named = std::find(named.begin(), named.end(), number) != named.end();
    events_.push_back(SignalReceived{.signal = number, .to_workers = is_named ? number : SIGTERM});
  }
}

void Agent::HandleControlPipe(bool readable) {
  bool ended = false;
  for (const PassSignal& passed : config_.control_pipe->TakeSignals(readable, ended))
    TakeSignal(passed.signal);
  for (const PassStdin& input : config_.control_pipe->TakeInput())
    stdin_pump_.Receive(input.bytes, input.end);
  if (!ended) return;
  poller_.Remove(config_.control_pipe->fd());
  events_.push_back(ControlPipeLost{});
}

StdinPump Agent::MakeStdinPump() {
  const WorkerStdin& worker_stdin = config_.options.worker_stdin;
  if (!config_.control_pipe.has_value()) return StdinPump(worker_stdin, config_.warden);
  return StdinPump(worker_stdin, [this] { SendToHead(StdinWanted{}); });
}

void Agent::SendToHead(const NodeMessage& message) {
  if (config_.control_pipe.has_value()) console_.WriteMessage(ToLine(message));
}

void Agent::HandleSession(TimePoint now) {
  for (SessionEvent& event : session_events_.TakeAll()) {
    auto* directive = std::get_if<Directive>(&event);
    if (directive == nullptr) {
      NotifyStore(event);
      std::visit(
          [this](auto& kind) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(kind)>, Directive>) {
              events_.push_back(std::move(kind));
            }
          },
          event);
      continue;
    }
    if (const auto* accepted = std::get_if<Accepted>(directive)) {
      heartbeat_ = accepted->heartbeat;
      reconnect_timeout_ = accepted->durable ? kReconnectTimeout : accepted->lease;
      SendToHead(Joined{});
      heartbeat_due_ = heartbeat_.count() > 0 ? std::optional(now + heartbeat_) : std::nullopt;
    }
    LogFeed& feed = workers_.logs().feed();
    std::visit(Overloaded{[&](LogWatches& watches) { feed.SetWatches(watches.watches); },
                          [&](LogsTaken& taken) { feed.Taken(taken); },
                          [&](Fault& fault) { HandleFault(fault, now); },
                          [&](OwnerQueries& queries) { owners_.OnQueries(queries); },
                          [&](OwnerAnswers& answers) { HandleOwners(answers); },
                          [&](ConnectionRefused& refused) {
                            if (const auto line = owners_.OnRefused(refused, now)) Print(*line);
                          },
                          [this](auto& kind) { events_.push_back(std::move(kind)); }},
               *directive);
  }
}

void Agent::HandleOwners(OwnerAnswers& answers) {
  for (OwnerAnswer& answer : answers.answers) {
    const std::size_t store = OwnerLookups::TakeStore(answer);
    if (store < stores_.size() && stores_[store].proxy != nullptr)
      stores_[store].proxy->OnOwners({answer});
  }
}

void Agent::SendOwners(TimePoint now) {
  for (Report& report : owners_.TakeReports(now)) {
    if (session_ != nullptr) session_->Send(std::move(report));
  }
  if (const auto problem = owners_.TakeProblem()) Print(*problem);
}

// The store's stream shares the session's connection but has no lease of its own.
void Agent::NotifyStore(const SessionEvent& event) {
  if (std::holds_alternative<Reconnecting>(event)) workers_.logs().feed().Pause();
  for (const WorkerStoreDoor& store : stores_) {
    if (store.proxy == nullptr) continue;
    if (std::holds_alternative<Reconnected>(event)) {
      store.proxy->ServiceIsBack();
    } else if (const auto* ended = std::get_if<SessionEnded>(&event)) {
      store.proxy->Fail(
          ended->status.ok()
              ? absl::UnavailableError("the rendezvous service has ended the node's session")
              : ended->status);
    }
  }
}

// Sent by the loop itself, so that an agent whose loop hangs counts as lost.
void Agent::SendHeartbeatIfDue(TimePoint now) {
  std::optional<Heartbeat> heartbeat = watch_.TakeHeartbeat(now);
  const bool due = heartbeat_due_.has_value() && now >= *heartbeat_due_;
  if (session_ == nullptr || (!heartbeat.has_value() && !due)) return;
  if (!heartbeat.has_value()) heartbeat = watch_.Repeat();
  heartbeat->time = watch_.TimeOfRanks(now);
  session_->Send(*std::move(heartbeat));
  if (heartbeat_due_.has_value()) heartbeat_due_ = now + heartbeat_;
}

// Before the reports about the workers' ends: a subscriber receives their last lines before the end
// of the round.
void Agent::SendLogLines() {
  if (session_ == nullptr) return;
  for (LogLines& lines : workers_.logs().feed().Take(/*all=*/!workers_.round_live())) {
    session_->Send(std::move(lines));
  }
}

// Effects may cause events (a worker that cannot be started): repeats until there are none.
void Agent::Process(TimePoint now) {
  while (true) {
    SendLogLines();
    if (events_.empty()) return;
    std::vector<Event> events = std::exchange(events_, {});
    for (Event& event : events) {
      watch_.OnEvent(event, now);
      observer_.OnEvent(event, state_);
      for (const Effect& effect : Step(state_, event, now, supervisor_config_))
        Perform(effect, now);
    }
  }
}

void Agent::OnWorkersStarted(TimePoint now) {
  for (int i = 0; i < workers_.table().size(); ++i) {
    const auto pid = workers_.table().pid(i);
    if (pid.has_value() && !workers_.table()[i].carried)
      observer_.OnStarted(*state_.round, i, *pid);
  }
  if (workers_.round_live()) watch_.Begin(*state_.round, now);
}

void Agent::Perform(const Effect& effect, TimePoint now) {
  if (const auto* spawn = std::get_if<SpawnRound>(&effect)) {
    Start start = spawn->start;
    const absl::Status status = ServeStores(start);
    if (status.ok()) {
      stdin_pump_.BeginRound(start.rank_first, workers_.table().size());
      workers_.Spawn(start, NetworkVariables(start), now, events_);
    } else {
      workers_.FailToSpawn(std::string(status.message()), now, events_);
    }
  } else if (std::holds_alternative<ParkWorkers>(effect)) {
    workers_.Prepare();
  } else if (const auto* examine = std::get_if<ExamineWorkers>(&effect)) {
    watch_.Examine(examine->silent, now, events_);
  } else if (const auto* terminate = std::get_if<TerminateWorkers>(&effect)) {
    workers_.Stop(terminate->signal, terminate->keep, now, events_);
  } else if (const auto* kill_all = std::get_if<KillWorkers>(&effect)) {
    workers_.Kill(kill_all->keep, now, events_);
  } else if (const auto* kill = std::get_if<KillWorker>(&effect)) {
    workers_.KillOne(kill->local_rank, now, events_);
  } else if (const auto* tell = std::get_if<TellNotice>(&effect)) {
    TellWorkers(tell->preemption, now);
  } else if (std::holds_alternative<EndNotice>(effect)) {
    workers_.notices().End();
  } else if (const auto* send = std::get_if<SendReport>(&effect)) {
    if (session_ == nullptr) return;
    Report report = send->report;
    if (auto* succeeded = std::get_if<NodeSucceeded>(&report))
      succeeded->time = watch_.TimeOfRanks(now);
    session_->Send(std::move(report));
  } else if (const auto* stopped = std::get_if<ReportStopped>(&effect)) {
    // Without a free port (there is always one) rank 0 fails to listen and reports it.
    [[maybe_unused]] const absl::Status taken = TakeWorkerPorts();
    NodeStopped report{stopped->round, stores_.front().port, stopped->ends, watch_.TimeOfRanks(now),
                       watch_.TakePlaces()};
    for (const RoleWorkers& role : RolesToJoin()) report.role_ports.push_back(role.worker_port);
    session_->Send(std::move(report));
  } else if (std::holds_alternative<ReportStuck>(effect)) {
    workers_.ReportStuck();
  } else if (const auto* note = std::get_if<PrintNote>(&effect)) {
    Print(note->text);
  } else if (const auto* end = std::get_if<End>(&effect)) {
    workers_.logs().ShowAll();  // output from before a death comes before the verdict
    ShowEnd(*end);
    exit_code_ = end->exit_code;
    observer_.OnEnd(end->exit_code);
  }
}

}  // namespace ddprun
