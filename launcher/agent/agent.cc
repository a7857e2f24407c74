// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/agent.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <random>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/disk_limits.h"
#include "launcher/base/limits.h"
#include "launcher/base/renamed_flags.h"
#include "launcher/base/signals.h"
#include "launcher/base/temp_dir.h"
#include "launcher/node/network.h"
#include "launcher/processes/worker_interface.h"
#include "launcher/supervisor/verdict.h"
#include "launcher/supervisor/verdict_json.h"
#include "proto/failure_record.h"
#include "proto/output_file.h"
#include "proto/version.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/own_address.h"

namespace ddprun {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

OwnedFd OpenSignalFd(const sigset_t& signals) {
  return OwnedFd(signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
}

sigset_t WithChildSignal(sigset_t signals) {
  sigaddset(&signals, SIGCHLD);
  return signals;
}

}  // namespace

NodeId MakeNodeId(const std::string& host) {
  std::random_device random;
  return NodeId{absl::StrFormat("%s-%d-%08x", host, getpid(), random())};
}

Agent::Agent(Config config)
    : config_(std::move(config)),
      host_(config_.host.empty() ? HostName() : config_.host),
      console_(STDOUT_FILENO, STDERR_FILENO,
               config_.control_pipe.has_value() ? Console::Form::kMarked : Console::Form::kPlain),
      workers_(MakeWorkersConfig(), poller_, console_),
      watch_(config_.options.hangs, workers_, poller_, console_),
      signal_fd_(
          OpenSignalFd(WithChildSignal(Union(config_.end_signals, config_.forwarded_signals)))),
      guard_fds_(config_.guard_pidfds.begin(), config_.guard_pidfds.end()) {}

Agent::~Agent() = default;

Workers::Config Agent::MakeWorkersConfig() const {
  return {.program = config_.program,
          .local_world_size = config_.local_world_size,
          .places = config_.places,
          .role = config_.options.role,
          .host = host_,
          .temp_dir = config_.temp_dir,
          .logs = config_.options.logs,
          .agent_socket = absl::StrCat(config_.temp_dir, "/agent.sock"),
          .signal_mask = config_.worker_signal_mask,
          .cgroup = config_.cgroup};
}

absl::Status Agent::WatchSources() {
  bool all = poller_.Add(signal_fd_.get(), {Source::kSignal}) &&
             poller_.Add(session_events_.fd(), {Source::kSession}) &&
             poller_.Add(workers_.ends_fd(), {Source::kWorkerEnd}) &&
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

absl::Status Agent::Open() {
  const ObserveOptions& observe = config_.options.observe;
  if (absl::Status status =
          observer_.Open(observe, config_.node_id, host_, workers_.logs().NoticeSink(),
                         [this] { session_events_.Wake(); });
      !status.ok()) {
    return status;
  }
  const std::string run_id = config_.options.run_id.empty() ? MakeRunId() : config_.options.run_id;
  absl::StatusOr<RendezvousEndpoint> rendezvous =
      OpenRendezvous(config_.options, config_.security, run_id, observer_.watcher());
  if (!rendezvous.ok()) return rendezvous.status();
  rendezvous_ = *std::move(rendezvous);
  if (absl::Status status = observer_.Serve(observe, rendezvous_.server.get()); !status.ok()) {
    return status;
  }
  if (rendezvous_.server != nullptr && !rendezvous_.name.empty())
    SendToHead(Serving{rendezvous_.port});
  const std::optional<int>& port = config_.options.master_port;
  const std::string address = config_.options.master_addr.value_or("127.0.0.1");
  if (rendezvous_.name.empty() && port.has_value() && IsThisMachine(address) &&
      !IsPortFree(address, *port)) {
    return absl::AlreadyExistsError(
        absl::StrCat("port ", *port, " at ", address,
                     " is in use; name another one with --master-port, or leave it out"));
  }
  supervisor_config_ = {.local_world_size = config_.local_world_size,
                        .host = host_,
                        .service = rendezvous_.name,
                        .hosts_service = rendezvous_.server != nullptr,
                        .join_timeout = config_.options.join_timeout,
                        .shutdown_timeout = config_.options.stopping.shutdown_timeout,
                        .restart_timeout = config_.options.stopping.restart_timeout};
  config_.security.Forget();
  if (rendezvous_.server == nullptr) {
    channel_ = MakeServiceChannel(rendezvous_.target, config_.credentials, rendezvous_.host);
  }
  join_deadline_ = Now() + config_.options.join_timeout;
  TryJoin(Now());
  return absl::OkStatus();
}

// ---- Joining

absl::StatusOr<std::string> Agent::OwnAddress() const {
  if (!config_.options.local_addr.empty()) return config_.options.local_addr;
  if (rendezvous_.name.empty()) return config_.options.master_addr.value_or("127.0.0.1");
  return AdvertisedAddress(rendezvous_.host, rendezvous_.port);
}

absl::StatusOr<int> Agent::WorkerPort() const {
  // The service needs no port in a run of one node: the one that was asked for is the workers'.
  if (rendezvous_.name.empty() && config_.options.master_port.has_value())
    return *config_.options.master_port;
  absl::StatusOr<int> port = FindFreePort(address_);
  // Free at another address than the service's, it would still confuse whoever looks at it.
  if (port.ok() && *port == rendezvous_.port) port = FindFreePort(address_);
  return port;
}

std::vector<std::string> Agent::NetworkVariables(const Start& start) const {
  // The workers of one node find each other by themselves, and programs that join several runs of
  // one node each have networks of their own.
  if (start.node_count == 1) return {};
  const std::optional<WorkerInterface> interface = InterfaceOf(address_);
  if (!interface.has_value()) return {};
  // It reads a file in the home folder, which may be a file server's.
  const auto named = CallWithDeadline<bool>(kDiskAnswerTimeout,
                                            [] { return NcclConfNamesInterfaces(ReadVariable); });
  return InterfaceVariables(*interface, ReadVariable, named.value_or(false));
}

void Agent::TryJoin(TimePoint now) {
  join_retry_.reset();
  const auto remaining =
      std::chrono::duration_cast<std::chrono::milliseconds>(join_deadline_ - now);
  absl::StatusOr<std::string> address = OwnAddress();
  absl::Status status = address.status();
  absl::StatusOr<int> port = 0;
  if (status.ok()) {
    address_ = *address;
    port = WorkerPort();
    status = port.status();
  }
  if (!status.ok()) {
    if (remaining.count() <= 0) {
      events_.push_back(SessionEnded{absl::DeadlineExceededError(status.message())});
    } else {
      events_.push_back(Connecting{std::string(status.message()), remaining});
      join_retry_ = std::min(join_deadline_, now + kResolveRetryInterval);
    }
    return;
  }
  const Options& options = config_.options;
  Join join;
  join.protocol_version = kProtocolVersion;
  join.software_version = kSoftwareVersion;
  join.run_id = options.run_id;
  join.node_id = config_.node_id;
  join.host = host_;
  join.node_rank = options.node_rank;
  if (options.nodes == 1) join.node_rank = 0;
  join.local_world_size = config_.local_world_size;
  join.nodes_min = options.nodes_min;
  join.nodes_max = options.nodes;
  join.restarts_max = options.restarts.max_restarts;
  join.restart_policy = options.restarts.policy;
  join.hosts_service = supervisor_config_.hosts_service;
  join.address = address_;
  join.worker_port = *port;
  join.join_timeout = remaining;
  join.last_call = options.last_call;
  join.lease = options.lease;
  join.hosts_service = rendezvous_.server != nullptr;
  join.role = options.role;
  join.stop_timeout = StopTimeout(options.stopping);
  SessionClient::Handler handler = [this](SessionEvent event) {
    session_events_.Post(std::move(event));
  };
  session_ = rendezvous_.server != nullptr
                 ? rendezvous_.server->OpenSession(join, std::move(handler))
                 : SessionClient::Open(channel_, std::move(join), remaining, std::move(handler));
}

absl::Status Agent::ServeStore(const Start& start) {
  if (absl::Status status = RestoreTempDir(config_.temp_dir); !status.ok()) return status;
  if (store_proxy_ != nullptr) {
    if (absl::Status status = store_proxy_->EnsureListening(); !status.ok()) return status;
  } else {
    absl::StatusOr<std::unique_ptr<StoreProxy>> proxy = StoreProxy::Start(
        {.socket_path = absl::StrCat(config_.temp_dir, "/agent.sock"),
         .channel = channel_,
         .door = rendezvous_.server ? rendezvous_.server->store_connector() : nullptr,
         .run_id = start.run_id,
         .node_id = config_.node_id,
         .reconnect_timeout = reconnect_timeout_});
    if (!proxy.ok()) return proxy.status();
    store_proxy_ = *std::move(proxy);
  }
  store_proxy_->SetRound(start.round);
  return absl::OkStatus();
}

// ---- The loop

void Agent::Loop() {
  while (true) {
    TimePoint now = Now();
    Process(now);
    if (exit_code_.has_value()) return;
    ShowRefusals(now);
    console_.Pump();
    console_watch_.Update(console_, poller_);
    std::optional<TimePoint> deadline;
    for (const std::optional<TimePoint>& candidate :
         {NextDeadline(state_), workers_.NextDeadline(), workers_.logs().NextDeadline(),
          watch_.NextDeadline(), join_retry_, heartbeat_due_, observer_.NextDeadline()}) {
      if (candidate.has_value() && (!deadline.has_value() || *candidate < *deadline))
        deadline = candidate;
    }
    const std::vector<Ready> ready = poller_.Wait(deadline);
    now = Now();
    for (const Ready& one : ready) HandleReady(one, now);
    if (join_retry_.has_value() && *join_retry_ <= now) TryJoin(now);
    workers_.OnDeadline(now, events_);
    workers_.logs().OnDeadline(now);
    watch_.OnTurn(now, state_.phase == Phase::kRunning, events_);
    BeatIfDue(now);
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
      watch_.OnReady(ready, now);
      return workers_.OnReady(ready, now, events_);
    case Source::kWorkerEnd:
      return workers_.OnReady(ready, now, events_);
    case Source::kWorkerProgress:
      return watch_.OnReady(ready, now);
    case Source::kStacks:
      return;  // each turn of the loop takes what there is
    case Source::kConsoleOut:
    case Source::kConsoleErr:
      return;  // each turn of the loop writes what it can
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
  } else {
    events_.push_back(SignalReceived{number});
  }
}

void Agent::HandleControlPipe(bool readable) {
  bool ended = false;
  for (const PassSignal& passed : config_.control_pipe->TakeSignals(readable, ended))
    TakeSignal(passed.signal);
  if (!ended) return;
  poller_.Remove(config_.control_pipe->fd());
  events_.push_back(ControlPipeLost{});
}

void Agent::SendToHead(const NodeMessage& word) {
  if (config_.control_pipe.has_value()) console_.WriteWord(ToLine(word));
}

void Agent::HandleSession(TimePoint now) {
  for (SessionEvent& event : session_events_.TakeAll()) {
    auto* directive = std::get_if<Directive>(&event);
    if (directive == nullptr) {
      TellStore(event);
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
      if (heartbeat_.count() > 0)
        workers_.SetDiskPatience(std::min<std::chrono::milliseconds>(kLogOpenTimeout, heartbeat_));
    }
    LogFeed& feed = workers_.logs().feed();
    std::visit(Overloaded{[&](LogWatches& watches) { feed.SetWatches(watches.watches); },
                          [&](LogsTaken& taken) { feed.Taken(taken); },
                          [this](auto& kind) { events_.push_back(std::move(kind)); }},
               *directive);
  }
}

// The store's stream shares the session's connection and is watched by itself; what becomes of the
// service is known here.
void Agent::TellStore(const SessionEvent& event) {
  if (std::holds_alternative<Reconnecting>(event)) workers_.logs().feed().Pause();
  if (store_proxy_ == nullptr) return;
  if (std::holds_alternative<Reconnected>(event)) {
    store_proxy_->ServiceIsBack();
  } else if (const auto* ended = std::get_if<SessionEnded>(&event)) {
    store_proxy_->Fail(
        ended->status.ok()
            ? absl::UnavailableError("the rendezvous service has ended the node's session")
            : ended->status);
  }
}

// From the loop itself, so that an agent whose loop hangs counts as lost.
void Agent::BeatIfDue(TimePoint now) {
  std::optional<Heartbeat> heartbeat = watch_.TakeHeartbeat(now);
  const bool due = heartbeat_due_.has_value() && now >= *heartbeat_due_;
  if (session_ == nullptr || (!heartbeat.has_value() && !due)) return;
  session_->Send(std::move(heartbeat).value_or(Heartbeat{}));
  if (heartbeat_due_.has_value()) heartbeat_due_ = now + heartbeat_;
}

// Before what the workers' ends are answered with: who listens has their last lines before he hears
// of the round's end.
void Agent::SayLines() {
  if (session_ == nullptr) return;
  for (LogLines& lines : workers_.logs().feed().Take(/*all=*/!workers_.round_live())) {
    session_->Send(std::move(lines));
  }
}

// Where the others wait is known only before the next one ends.
void Agent::AddPlaces(Event& event) {
  if (std::holds_alternative<AllGone>(event)) watch_.End();
  auto* ended = std::get_if<WorkerEnded>(&event);
  if (ended == nullptr) return;
  std::vector<RanksInPlace> places = watch_.OnWorkerEnded(ended->local_rank);
  if (!IsSuccess(ended->outcome) && !ended->stopped) ended->places = std::move(places);
}

// Effects may bring events (a worker that cannot be started), so until there are none.
void Agent::Process(TimePoint now) {
  while (true) {
    SayLines();
    if (events_.empty()) return;
    std::vector<Event> events = std::exchange(events_, {});
    for (Event& event : events) {
      AddPlaces(event);
      observer_.OnEvent(event, state_);
      for (const Effect& effect : Step(state_, event, now, supervisor_config_))
        Perform(effect, now);
    }
  }
}

void Agent::Perform(const Effect& effect, TimePoint now) {
  if (const auto* spawn = std::get_if<SpawnRound>(&effect)) {
    const absl::Status status = ServeStore(spawn->start);
    if (status.ok()) {
      workers_.Spawn(spawn->start, NetworkVariables(spawn->start), now, events_);
      for (int i = 0; i < config_.local_world_size; ++i) {
        if (const auto pid = workers_.pid(i)) observer_.OnStarted(spawn->start, i, *pid);
      }
      watch_.Begin(spawn->start, now);
    } else {
      workers_.FailToSpawn(std::string(status.message()), events_);
    }
  } else if (const auto* examine = std::get_if<ExamineWorkers>(&effect)) {
    watch_.Examine(examine->silent, now, events_);
  } else if (const auto* terminate = std::get_if<TerminateWorkers>(&effect)) {
    workers_.Signal(terminate->signal, now, events_);
    workers_.Signal(SIGCONT, now, events_);  // one that is stopped could not act on it
  } else if (std::holds_alternative<KillWorkers>(effect)) {
    workers_.Kill(now, events_);
  } else if (const auto* kill = std::get_if<KillWorker>(&effect)) {
    workers_.KillOne(kill->local_rank, now, events_);
  } else if (const auto* send = std::get_if<SendReport>(&effect)) {
    if (session_ != nullptr) session_->Send(send->report);
  } else if (const auto* stopped = std::get_if<ReportStopped>(&effect)) {
    // Without a free port (there always is one) rank 0 would fail to listen, and say so.
    session_->Send(NodeStopped{stopped->round, WorkerPort().value_or(0), stopped->ends});
  } else if (std::holds_alternative<ReportStuck>(effect)) {
    workers_.ReportStuck();
  } else if (const auto* note = std::get_if<PrintNote>(&effect)) {
    Print(note->text);
  } else if (const auto* end = std::get_if<End>(&effect)) {
    workers_.logs().ShowAll();  // what was said before a death comes before the verdict
    ShowEnd(*end);
    exit_code_ = end->exit_code;
    observer_.OnEnd(end->exit_code);
  }
}

// ---- The console and the end

void Agent::Print(const std::string& sentence) {
  console_.WriteLine(OutputStream::kErr, absl::StrCat("ddprun: ", ForUsers(sentence)));
}

void Agent::ShowEnd(const End& end) {
  const VerdictOptions& options = config_.options.verdict;
  std::string text = end.text;
  if (end.verdict.has_value() && end.verdict->cause.has_value() &&
      console_.EndsWith(end.verdict->cause->message) && text == VerdictText(*end.verdict)) {
    text = VerdictText(*end.verdict, FailureMessage::kOmit);
  }
  if (options.form == VerdictForm::kJson || !options.file.empty()) {
    const RunEnd whole{
        .run_id = state_.round.has_value() ? state_.round->run_id : config_.options.run_id,
        .host = host_,
        .exit_code = end.exit_code,
        .text = end.text,
        .verdict = end.verdict};
    const std::string json = VerdictJson(whole);
    if (options.form == VerdictForm::kJson && !text.empty()) text = json;
    if (!options.file.empty()) {
      SayIfNotWritten(options.file,
                      [file = options.file, json] { return WriteWholeFile(file, json + "\n"); });
    }
  }
  if (config_.control_pipe.has_value()) {
    // All nodes have the same to say; the head says it once.
    if (!text.empty()) SendToHead(NodeVerdict{text.substr(0, kVerdictBytesMax)});
    if (end.exit_code == 0 && end.verdict.has_value() && end.verdict->success) {
      SendToHead(Finished{.run_id = config_.options.run_id,
                          .round = static_cast<long long>(ToNumber(end.verdict->round)),
                          .nodes = end.verdict->node_count,
                          .world_size = end.verdict->world_size});
    }
    return;
  }
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    if (!text.empty()) console_.WriteLine(OutputStream::kErr, ForUsers(line));
  }
  LeaveRecord(end);
}

// As torchrun does for whoever started it: the first cause is this process's own failure.
void Agent::LeaveRecord(const End& end) {
  const std::string& file = config_.options.verdict.record_file;
  if (file.empty() || !end.verdict.has_value() || !end.verdict->cause.has_value()) return;
  SayIfNotWritten(file, [file, record = RecordOf(*end.verdict->cause)] {
    return WriteFailureRecord(file, record, static_cast<long long>(std::time(nullptr)));
  });
}

// The run is over, and a disk that hangs must not keep the node from ending.
void Agent::SayIfNotWritten(const std::string& path, std::function<absl::Status()> write) {
  const auto status = CallWithDeadline<absl::Status>(kVerdictFileTimeout, std::move(write));
  if (!status.has_value()) {
    Print(absl::StrCat("cannot write ", path, ": its disk has not answered for ",
                       kVerdictFileTimeout.count(), " s; check that disk"));
  } else if (!status->ok()) {
    Print(std::string(status->message()));
  }
}

void Agent::Close() {
  console_.Pump();
  session_.reset();
  store_proxy_.reset();
  channel_.reset();
  if (rendezvous_.server != nullptr) {
    if (!rendezvous_.name.empty()) rendezvous_.server->WaitUntilDrained(kFinishTimeout);
  }
  observer_.Close();
  // Last of all: a slow reader or disk keeps no other node waiting, and a signal ends the wait.
  const OwnedFd impatience = OpenSignalFd(config_.end_signals);
  workers_.logs().FinishFiles(impatience.get());
  console_.Flush(kConsoleStallTimeout, kConsoleFlushTimeout, impatience.get());
  RemoveTempDir(config_.temp_dir);
}

}  // namespace ddprun
