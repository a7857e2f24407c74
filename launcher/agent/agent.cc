// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/agent.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/base/signals.h"
#include "launcher/node/network.h"
#include "launcher/options/options.h"
#include "proto/version.h"
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
      notice_watch_(config_.options.stopping.notices, ReadVariable, background_),
      stdin_pump_(MakeStdinPump()),
      signal_fd_(OpenSignalFd(WithChildSignal(
          Union(config_.end_signals, Union(config_.forwarded_signals, config_.notice_signals))))),
      guard_fds_(config_.guard_fds.begin(), config_.guard_fds.end()),
      own_address_(config_.options, background_),
      health_(config_.options.health.timeout),
      may_join_(config_.health_command.empty()),
      slurm_comment_(
          config_.options.observe.slurm_comment ? ReadVariable("SLURM_JOB_ID").value_or("") : ""),
      trainer_(ReadVariable, background_),
      stores_(config_, session_, background_, workers_.logs().NoticeSink()) {
  config_.worker_stdin = stdin_pump_.worker_end();
}

Agent::~Agent() = default;

absl::Status Agent::WatchSources() {
  bool all = poller_.Add(signal_fd_.get(), {Source::kSignal}) &&
             poller_.Add(session_.fd(), {Source::kSession}) &&
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

// ---- Joining

absl::Status Agent::Open() {
  const ObserveOptions& observe = config_.options.observe;
  if (absl::Status status =
          observer_.Open(observe, config_.node_id, config_.host, config_.report, background_,
                         workers_.logs().NoticeSink(), [this] { session_.Wake(); });
      !status.ok()) {
    return status;
  }
  if (absl::Status status = session_.OpenService(
          config_.options, config_.security, config_.credentials, observer_.watcher(),
          [notice = workers_.logs().NoticeSink()](const std::string& sentence) {
            notice("the rendezvous service here " + sentence);
          });
      !status.ok()) {
    return status;
  }
  const RendezvousEndpoint& service = session_.service();
  if (absl::Status status = observer_.Serve(observe, service.server.get()); !status.ok()) {
    return status;
  }
  if (observe.web_port.has_value() && session_.hosts_service()) {
    if (absl::Status status = OpenPage(); !status.ok()) return status;
  }
  if (session_.hosts_service() && !service.name.empty()) SendToHead(Serving{service.port});
  if (session_.hosts_service())
    config_.report.Service(service.name.empty() ? service.server->target() : service.name);
  const std::optional<int>& port = config_.options.master_port;
  const std::string address = config_.options.master_addr.value_or("127.0.0.1");
  if (service.name.empty() && port.has_value() && IsThisMachine(address) &&
      !IsPortFree(address, *port)) {
    return absl::AlreadyExistsError(
        absl::StrCat("port ", *port, " at ", address,
                     " is in use; name another one with --master-port, or leave it out"));
  }
  supervisor_config_ = {.host = config_.host,
                        .service = service.name,
                        .hosts_service = session_.hosts_service(),
                        .join_timeout = config_.options.join_timeout,
                        .shutdown_timeout = config_.options.stopping.shutdown_timeout,
                        .restart_timeout = config_.options.stopping.restart_timeout,
                        .checks_health = !may_join_};
  config_.security.Forget();
  own_address_.Begin(Now());
  if (!may_join_) BeginHealthCheck(Now());
  return absl::OkStatus();
}

absl::Status Agent::OpenPage() {
  auto channel = session_.OpenOwnChannel(config_.security);
  if (!channel.ok()) return channel.status();
  const absl::StatusOr<std::string> where =
      observer_.OpenPage(config_.options.observe, *std::move(channel), session_.own_run_id());
  if (where.ok()) Print(*where);
  return where.status();
}

void Agent::Join(const std::string& address, TimePoint now) {
  if (absl::Status status = stores_.TakePorts(address); !status.ok())
    return own_address_.Retry(status, now, events_);
  const Options& options = config_.options;
  ddprun::Join join;
  join.protocol_version = kProtocolVersion;
  join.software_version = kSoftwareVersion;
  join.run_id = options.run_id;
  join.node_id = config_.node_id;
  join.host = config_.host;
  if (options.asks_for_rank) join.node_rank = options.node_rank;
  if (options.nodes == 1) join.node_rank = 0;
  join.local_world_size = config_.local_world_size();
  join.nodes_min = options.nodes_min;
  join.nodes_max = options.nodes;
  join.restarts_max = options.restarts.max_restarts;
  join.restart_policy = options.restarts.policy;
  join.hosts_service = session_.hosts_service();
  join.address = address;
  join.worker_port = stores_.port();
  join.addresses = OwnAddresses();
  join.join_timeout = own_address_.TimeLeft(now);
  join.last_call = options.last_call;
  join.lease = options.lease;
  join.role = options.role;
  join.roles = stores_.Roles();
  join.ranks_by_role = options.ranks_by_role;
  join.rank_order = options.rank_order;
  join.topology = config_.topology;
  join.evict_stragglers = options.hangs.evict_stragglers;
  join.stop_timeout = StopTimeout(options.stopping);
  if (!config_.health_command.empty()) join.stop_timeout += options.health.timeout;
  join.hears_preemption = true;
  join.traceparent = observer_.traceparent();
  session_.Begin(std::move(join), own_address_.TimeLeft(now));
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
    workers_.Spare({health_.pid(), slurm_comment_.pid(), observer_.pid()});
    const bool round_runs = state_.phase == Phase::kRunning;
    const std::vector<Ready> ready = poller_.Wait(Earliest(
        {NextDeadline(state_), workers_.NextDeadline(), workers_.logs().NextDeadline(),
         watch_.NextDeadline(round_runs), own_address_.NextDeadline(), session_.NextDeadline(),
         observer_.NextDeadline(), faults_.NextDeadline(), notice_watch_.NextDeadline(),
         stdin_pump_.NextDeadline(), stores_.owners().NextDeadline(), health_.NextDeadline(),
         health_retry_, slurm_comment_.NextDeadline(), trainer_.NextDeadline()}));
    now = Now();
    for (const Ready& one : ready) HandleReady(one, now);
    if (session_.AnswerIsOverdue(now)) HandleSession(now);
    if (auto address = own_address_.OnTurn(session_.service(), now, events_))
      join_address_ = *std::move(address);
    OnHealthTurn(now);
    if (const auto problem = slurm_comment_.OnTurn([this] { return CommentText(); },
                                                   config_.worker_signal_mask, poller_, now))
      Print(*problem);
    if (const auto problem = observer_.OnTurn([this] { return CommentText(); },
                                              config_.worker_signal_mask, poller_, now))
      Print(*problem);
    if (may_join_ && !join_address_.empty()) Join(std::exchange(join_address_, ""), now);
    faults_.OnTurn(now);
    LookForNotice(now);
    SendOwners(now);
    stdin_pump_.OnTurn(poller_, now);
    if (const auto failure = trainer_.OnTurn(now)) Print(*failure);
    workers_.OnTurn(now, events_);
    if (workers_.TakeStarted()) OnWorkersStarted(now);
    workers_.logs().OnDeadline(now);
    watch_.OnTurn(now, round_runs, events_);
    if (auto stacks = watch_.TakeStacks(now)) session_.Send(*std::move(stacks));
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
      if (const auto message = workers_.ReadProgress(ready.worker, now, events_)) {
        watch_.OnProgress(ready.worker, *message, now);
        trainer_.OnProgress(ready.worker, *message, now);
        observer_.OnProgress(ready.worker, *message);
      }
      return;
    case Source::kStdin:
      return stdin_pump_.OnReady();
    case Source::kStacks:
    case Source::kSideCommand:
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
    // Kubernetes must not take the end of a drained node for that of its work.
    const NoticeOptions& notices = config_.options.stopping.notices;
    const bool by_pod = notices.source == NoticeSource::kKubernetes && number == SIGTERM;
    events_.push_back(
        NoticeGiven{.remaining = notices.grace,
                    .reason = absl::StrCat(by_pod ? "kubernetes: " : "", SignalName(number)),
                    .exit_code = by_pod ? ExitCodeOfSignal(number) : 0});
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
  for (SessionEvent& event : session_.TakeEvents(now)) {
    stores_.OnSessionEvent(event);
    if (std::holds_alternative<Reconnecting>(event)) workers_.logs().feed().Pause();
    std::visit(Overloaded{[&](Directive& directive) { HandleDirective(directive, now); },
                          [this](auto& kind) { events_.push_back(std::move(kind)); }},
               event);
  }
}

void Agent::HandleDirective(Directive& directive, TimePoint now) {
  if (const auto* accepted = std::get_if<Accepted>(&directive)) {
    session_.OnAccepted(*accepted, now);
    SendToHead(Joined{});
    if (!session_.hosts_service()) config_.report.Service(session_.service().name);
  }
  LogFeed& feed = workers_.logs().feed();
  OwnerLookups& owners = stores_.owners();
  std::visit(Overloaded{[&](LogWatches& watches) { feed.SetWatches(watches.watches); },
                        [&](LogsTaken& taken) { feed.Taken(taken); },
                        [&](Fault& fault) { HandleFault(fault, now); },
                        [&](OwnerQueries& queries) { owners.OnQueries(queries); },
                        [&](OwnerAnswers& answers) { stores_.OnAnswers(answers); },
                        [&](ConnectionRefused& refused) {
                          if (const auto line = owners.OnRefused(refused, now)) Print(*line);
                        },
                        [this](auto& kind) { events_.push_back(std::move(kind)); }},
             directive);
}

void Agent::SendOwners(TimePoint now) {
  for (Report& report : stores_.owners().TakeReports(now)) session_.Send(std::move(report));
  if (const auto problem = stores_.owners().TakeProblem()) Print(*problem);
}

// Sent by the loop itself, so that an agent whose loop hangs counts as lost.
void Agent::SendHeartbeatIfDue(TimePoint now) {
  std::optional<Heartbeat> heartbeat = watch_.TakeHeartbeat(now);
  if (!heartbeat.has_value() && !session_.HeartbeatIsDue(now)) return;
  if (!heartbeat.has_value()) heartbeat = watch_.Repeat();
  heartbeat->time = watch_.TimeOfRanks(now);
  session_.SendHeartbeat(*std::move(heartbeat), now);
}

// Before the reports about the workers' ends: a subscriber receives their last lines before the end
// of the round.
void Agent::SendLogLines() {
  if (!session_.is_open()) return;  // they wait for it
  for (LogLines& lines : workers_.logs().feed().Take(/*all=*/!workers_.round_live()))
    session_.Send(std::move(lines));
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
  config_.report.Begun();
  SendToHead(RoundBegun{});
}

void Agent::Perform(const Effect& effect, TimePoint now) {
  std::visit(
      Overloaded{
          [&](const SpawnRound& spawn) { StartRound(spawn, now); },
          [&](const ParkWorkers&) { workers_.Prepare(); },
          [&](const ExamineWorkers& examine) { watch_.Examine(examine.silent, now, events_); },
          [&](const TerminateWorkers& stop) {
            workers_.Stop(stop.signal, stop.keep, now, events_);
          },
          [&](const KillWorkers& kill) { workers_.Kill(kill.keep, now, events_); },
          [&](const KillWorker& kill) { workers_.KillOne(kill.local_rank, now, events_); },
          [&](const TellNotice& tell) { TellWorkers(tell.preemption, now); },
          [&](const EndNotice&) { workers_.notices().End(); },
          [&](const SendReport& send) {
            Report report = send.report;
            if (auto* succeeded = std::get_if<NodeSucceeded>(&report))
              succeeded->time = watch_.TimeOfRanks(now);
            session_.Send(std::move(report));
          },
          [&](const ReportStopped& stopped) { SendStopped(stopped, now); },
          [&](const CheckHealth&) { BeginHealthCheck(now); },
          [&](const ReportStuck&) { workers_.ReportStuck(); },
          [&](const PrintNote& note) { Print(note.text); },
          [&](const End& end) {
            workers_.logs().ShowAll();  // output from before a death comes before the verdict
            ShowEnd(end);
            exit_code_ = end.exit_code;
            observer_.OnEnd(end.exit_code, end.text);
            trainer_.OnEnd(end.exit_code == 0);
          }},
      effect);
}

void Agent::StartRound(const SpawnRound& spawn, TimePoint now) {
  Start start = spawn.start;
  const absl::Status status = stores_.Serve(start);
  if (!status.ok()) return workers_.FailToSpawn(std::string(status.message()), now, events_);
  trainer_.OnStart(start);
  stdin_pump_.BeginRound(start.rank_first, workers_.table().size());
  std::vector<std::string> variables = own_address_.Variables(start);
  if (const auto traceparent = TraceVariable(start)) variables.push_back(*traceparent);
  workers_.Spawn(start, variables, now, events_);
}

void Agent::SendStopped(const ReportStopped& stopped, TimePoint now) {
  // Without a free port (there is always one) rank 0 fails to listen and reports it.
  [[maybe_unused]] const absl::Status taken = stores_.TakePorts(own_address_.address());
  NodeStopped report{stopped.round, stores_.port(), stopped.ends, watch_.TimeOfRanks(now),
                     watch_.TakePlaces()};
  for (const RoleWorkers& role : stores_.Roles()) report.role_ports.push_back(role.worker_port);
  session_.Send(std::move(report));
}

}  // namespace ddprun
