// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/workers.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "launcher/base/temp_dir.h"
#include "launcher/collectives/collective_watch.h"
#include "launcher/placement/role_ranks.h"
#include "launcher/placement/worker_environ.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {
namespace {

Source SourceOf(OutputStream stream) {
  return stream == OutputStream::kOut ? Source::kWorkerOut : Source::kWorkerErr;
}

// Not valid: the workers share the stdin of ddprun.
OwnedFd OpenNoStdin(const WorkerStdin& worker_stdin) {
  if (worker_stdin.to == WorkerStdin::To::kShared) return {};
  return OwnedFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

Workers::Workers(const NodeConfig& config, Poller& poller, Console& console,
                 const Background& background)
    : config_(config),
      poller_(poller),
      console_(console),
      no_stdin_(OpenNoStdin(config.options.worker_stdin)),
      background_(background),
      log_mux_(console, config_.options.logs.fold, config_.options.logs.time),
      roles_(RolesOf(config.options, config.places)),
      workers_(static_cast<std::size_t>(config.local_world_size())),
      fork_server_(StartForkServer()),
      spawner_(background.Waker(), fork_server_),
      parker_(background.Waker(), fork_server_),
      evidence_(background, [this](int local_rank, const std::string& record) {
        log_mux_.KeepRecord(local_rank, record);
      }) {}

Workers::~Workers() { EndForkServer(); }

void Workers::EndForkServer() {
  if (fork_server_ != nullptr) fork_server_->Stop();
}

// ---- Starting

std::shared_ptr<ForkServer> Workers::StartForkServer() const {
  if (config_.options.preload.empty()) return nullptr;
  Place place;
  place.threads = config_.places.front().threads;
  return ForkServer::Start({.modules = config_.options.preload,
                            .program = config_.programs.front(),
                            .environ = CommonEnviron(OwnEnviron(), place),
                            .folder = config_.temp_dir + "/preload",
                            .signal_mask = config_.worker_signal_mask,
                            .file_limit = processes_.file_limit()},
                           background_.Waker());
}

void Workers::Spawn(const Start& start, const std::vector<std::string>& network, TimePoint now,
                    std::vector<Event>& events) {
  start_ = start;
  network_ = network;
  sent_signals_.clear();
  round_started_ = now;
  round_started_on_wall_ = std::chrono::system_clock::now();
  round_live_ = true;
  end_all_ = stopping_ = prepares_ = false;
  peers_until_.reset();
  dumps_ = {};
  reported_keeping_.reset();
  if (fork_server_ != nullptr) fork_server_->BeginRound();
  log_mux_.SetPromptRank(config_.worker_stdin >= 0 ? config_.options.worker_stdin.rank : -1);
  for (int i = 0; i < size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    const bool stays = processes_.IsLive(index) && Of(i).left;
    const std::optional<int> spare = stays || NeedsOwnStart(i) ? std::nullopt : ReadySpare(i);
    held_.erase(i);
    if (spare.has_value()) TakeSpare(i, *spare);
    if (stays || spare.has_value()) {
      Worker& worker = Of(i);
      worker = {.error_file = std::move(worker.error_file),
                .started_on_wall = worker.started_on_wall,
                .flight = std::move(worker.flight),
                .can_be_kept = true,
                .carried = true,
                .hears_notices = worker.hears_notices,
                .notice_signaled = worker.notice_signaled};
    } else {
      processes_.Vacate(index);
      progress_.Close(i);
      Of(i) = {};
    }
  }
  if (NeedsTemporaryLogDir(config_.options.logs) && log_round_.log_dir.empty()) {
    log_folder_ = background_.Start<absl::StatusOr<std::string>>([] { return MakeLogDir(); });
    starting_ = Starting::kLogFolder;
    starting_deadline_ = now + kLogOpenTimeout;
    return;
  }
  FinishSpawn(OpenLogs(now), now, events);
  ContinueSpawn(now, events);
}

// After each step. A failure ends the start.
void Workers::FinishSpawn(const absl::Status& status, TimePoint now, std::vector<Event>& events) {
  if (!status.ok()) FailToSpawn(std::string(status.message()), now, events);
}

void Workers::OnTurn(TimePoint now, std::vector<Event>& events) {
  if (fork_server_ != nullptr) {
    for (const std::string& note : fork_server_->TakeNotes())
      console_.WriteLine(OutputStream::kErr, note);
  }
  const bool is_due = (next_sweep_.has_value() && *next_sweep_ <= now) ||
                      (spare_deadline_.has_value() && *spare_deadline_ <= now);
  if (awaits_evidence_ || is_due) FinishIfAllGone(now, events);
  ContinueSpawn(now, events);
  TakeParked(now, events);
  SignalNotice(now);
  ReportKeeping(events);
  ParkWorkers();
  ReleaseEvidence(now, events);
}

void Workers::ContinueSpawn(TimePoint now, std::vector<Event>& events) {
  if (starting_ == Starting::kLogFolder) FinishSpawn(TakeLogFolder(now), now, events);
  if (starting_ == Starting::kLogFiles) {
    std::optional<absl::Status> opened = log_mux_.Opened();
    if (!opened.has_value() && now >= starting_deadline_) opened = log_mux_.GoOnUnopened();
    if (opened.has_value() && opened->ok()) StartProcesses(now);
    if (opened.has_value()) FinishSpawn(*opened, now, events);
  }
  if (starting_ == Starting::kProcesses) {
    std::optional<std::vector<Spawned>> spawned =
        spawning_.empty() ? std::vector<Spawned>() : spawner_.Take();
    if (spawned.has_value()) {
      starting_ = Starting::kNo;
      TakeSpawned(*std::move(spawned), now, events);
    } else if (now >= starting_deadline_) {
      starting_deadline_ = TimePoint::max();
      ReportLateStart();
    }
  }
}

void Workers::ReportLateStart() {
  const bool loading = fork_server_ != nullptr && fork_server_->IsLoading();
  console_.WriteLine(
      OutputStream::kErr,
      absl::StrCat(
          "ddprun: ",
          loading ? "the modules of --preload are still being imported"
                  : absl::StrCat("the disk of ", config_.programs.front().path, " does not answer"),
          ": the workers are not started yet"));
}

std::optional<TimePoint> Workers::NextDeadline() const {
  const bool waits_for_start = IsStarting() && starting_deadline_ != TimePoint::max();
  return Earliest({next_sweep_, waits_for_start ? std::optional(starting_deadline_) : std::nullopt,
                   EvidenceDeadline(), next_handler_look_, spare_deadline_});
}

WorkerEnv Workers::EnvironmentOf(int worker) const {
  WorkerEnv env;
  const int local_rank = StandsFor(worker);
  SetRanks(start_, roles_, config_.options.ranks_by_role, local_rank, env);
  env.restart_count = start_.restart_count;
  env.max_restarts = start_.restarts_max;
  env.run_id = start_.run_id;
  env.error_file = Of(worker).error_file;
  env.agent_socket =
      config_.agent_socket(config_.places[static_cast<std::size_t>(local_rank)].program);
  env.notify_socket = progress_.path(worker);
  env.agent_store = config_.options.worker_store != WorkerStore::kRank0;
  env.round = ToNumber(start_.round);
  env.one_round = HasOneRound(config_.options);
  env.console_is_terminal = console_.IsTerminal();
  return env;
}

std::string Workers::CountingRole(int local_rank) const {
  return config_.options.ranks_by_role ? RoleOf(local_rank).name : "";
}

// A temporary folder may have been cleaned since the last round.
bool Workers::WatchesCollectives() const {
  const bool any_python = std::any_of(config_.programs.begin(), config_.programs.end(),
                                      [](const Program& program) { return program.is_python; });
  return any_python && config_.options.hangs.flight_recorder &&
         WriteCollectiveWatch(CollectiveWatchFolder()).ok();
}

SpawnRequest Workers::RequestFor(int worker, const Place& place, std::vector<std::string> environ,
                                 const LogMux::WriteEnds& ends, int cgroup) const {
  const Program& program = config_.program_of(StandsFor(worker));
  const int local_rank = IsParked(worker) ? 0 : EnvironmentOf(worker).local_rank;
  return {.path = program.path,
          .argv = ArgumentsOf(program, local_rank),
          .environ = std::move(environ),
          .in = no_stdin_.get(),
          .out = ends.out.get(),
          .err = ends.err.get(),
          .cpus = place.cpus,
          .memory_nodes = place.memory_nodes,
          .signal_mask = config_.worker_signal_mask,
          .cgroup = cgroup};
}

// What this rank has that others have not.
void Workers::FitToRank(int local_rank, SpawnRequest& request) const {
  const int rank = start_.rank_first + local_rank;
  const WorkerStdin& worker_stdin = config_.options.worker_stdin;
  if (worker_stdin.to == WorkerStdin::To::kRank && worker_stdin.rank == rank)
    request.in = config_.worker_stdin;
  const WorkerWrap* wrap = FindWrap(config_.options.wraps, rank);
  if (wrap == nullptr) return;
  std::vector<std::string> argv = WrapCommand(*wrap, rank, local_rank);
  argv.push_back(config_.program_of(local_rank).path);
  argv.insert(argv.end(), request.argv.begin() + 1, request.argv.end());
  request.path = argv.front();
  request.argv = std::move(argv);
  request.wrapped = true;
}

// A parked worker could not take its place: it runs the program alone, and has no stdin.
bool Workers::NeedsOwnStart(int local_rank) const {
  const int rank = start_.rank_first + local_rank;
  const WorkerStdin& worker_stdin = config_.options.worker_stdin;
  return FindWrap(config_.options.wraps, rank) != nullptr ||
         (worker_stdin.to == WorkerStdin::To::kRank && worker_stdin.rank == rank);
}

// With one node it was checked before; with several the first says it for all.
void Workers::NoteMissingRank() const {
  const std::string sentence = MissingRank(config_.options, start_.world_size);
  if (start_.rank_first == 0 && !sentence.empty())
    console_.WriteLine(OutputStream::kErr, absl::StrCat("ddprun: ", sentence));
}

OwnedFd Workers::OpenCgroup() const {
  const std::string& path = cgroup_.path();
  return OwnedFd(path.empty() ? -1 : open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// Those of the round that are not there yet. The others hear of the round first, and prepare for it
// while these are started.
void Workers::StartProcesses(TimePoint now) {
  starting_ = Starting::kProcesses;
  starting_deadline_ = now + kSpawnNoticeDelay;
  spawning_.clear();
  for (int i = 0; i < size(); ++i) {
    if (Of(i).carried) {
      TellRound(i);
    } else {
      spawning_.push_back(i);
    }
  }
  NoteMissingRank();
  oom_watch_.Begin();
  // Workers that are kept stay in their cgroup, and new ones come to them.
  if (config_.cgroup != nullptr && cgroup_.path().empty())
    cgroup_.Enter(config_.cgroup->MakeRound(start_.round));
  if (spawning_.empty()) return;  // ContinueSpawn() finds nothing to wait for
  spawn_cgroup_ = OpenCgroup();
  const std::vector<std::string> inherited = OwnEnviron();
  watched_ = WatchesCollectives();
  std::vector<SpawnRequest> requests;
  for (const int i : spawning_) {
    const auto index = static_cast<std::size_t>(i);
    Worker& worker = Of(i);
    worker.started_on_wall = std::chrono::system_clock::now();
    worker.error_file = ErrorFile(i);
    // The run continues without these sockets, which few programs need.
    const std::string name = absl::StrCat(ToNumber(start_.round), "_", i);
    if (absl::Status status = progress_.Open(config_.temp_dir, name, i); !status.ok()) {
      ReportMissingProgress(std::string(status.message()));
    }
    const Place& place = config_.places[index];
    const WorkerEnv env = EnvironmentOf(i);
    std::vector<std::string> environment = WorkerEnviron(inherited, env, place, network_);
    if (watched_ && config_.program_of(i).is_python)
      AddCollectiveWatch(CollectiveWatchFolder(), environment);
    if (config_.options.hangs.flight_recorder) {
      worker.flight = AddFlightRecorder({.dumps = config_.temp_dir, .pipes = config_.shared_dir},
                                        absl::StrCat("flight_", name), env.rank, environment);
    }
    requests.push_back(
        RequestFor(i, place, std::move(environment), write_ends_[index], spawn_cgroup_.get()));
    FitToRank(i, requests.back());
  }
  spawner_.Begin(std::move(requests), processes_.file_limit());
}

void Workers::TakeSpawned(std::vector<Spawned> spawned, TimePoint now, std::vector<Event>& events) {
  for (std::size_t i = 0; i < spawned.size(); ++i)
    processes_.Adopt(static_cast<std::size_t>(spawning_[i]), std::move(spawned[i]));
  newly_started_ = true;
  // They were asked to end before they began.
  for (const int i : spawning_) Of(i).stopped = !deferred_stops_.empty();
  write_ends_.clear();  // so that a pipe ends with the worker
  spawn_cgroup_.Reset();
  for (const int i : spawning_) {
    Watch(i);
    if (!processes_.IsLive(static_cast<std::size_t>(i)))
      AddEnded(i, std::nullopt, std::nullopt, now);
  }
  ReapHeld(now, events);  // SIGCHLD may have come before they were watched
  for (const int signal : std::exchange(deferred_forwards_, {})) Forward(signal);
  for (const DeferredStop& stop : std::exchange(deferred_stops_, {}))
    AskToEnd(stop.signal, stop.keep);
  FinishIfAllGone(now, events);
}

// Its output, what it reports, and its end.
void Workers::Watch(int worker) {
  for (const LogMux::Pipe& pipe : log_mux_.OpenPipes(worker)) {
    if (!poller_.Add(pipe.fd, {SourceOf(pipe.stream), worker}))
      EndUnwatched(worker, ErrnoText(errno));
  }
  const int progress = progress_.fd(worker);
  if (progress >= 0 && !poller_.Add(progress, {Source::kWorkerProgress, worker}))
    ReportMissingProgress(ErrnoText(errno));
  const auto index = static_cast<std::size_t>(worker);
  // SIGCHLD reports the end if the pidfd cannot be watched.
  if (processes_.IsLive(index) &&
      !ends_.Add(processes_.pidfd(index), {Source::kWorkerEnd, worker})) {
    held_.insert(worker);
  }
}

void Workers::Unwatch(int worker) {
  for (const LogMux::Pipe& pipe : log_mux_.OpenPipes(worker)) poller_.Remove(pipe.fd);
  poller_.Remove(progress_.fd(worker));
  ends_.Remove(processes_.pidfd(static_cast<std::size_t>(worker)));
  held_.erase(worker);
}

void Workers::Forward(int signal) {
  if (IsStarting()) return deferred_forwards_.push_back(signal);
  for (int i = 0; i < size(); ++i) processes_.SignalProcess(static_cast<std::size_t>(i), signal);
}

void Workers::ReportMissingProgress(const std::string& why) {
  console_.WriteLine(OutputStream::kErr,
                     absl::StrCat("ddprun: cannot receive the workers' progress: ", why));
}

// Its output could not be read, and it would block once its pipe is full.
void Workers::EndUnwatched(int worker, const std::string& why) {
  const std::string who =
      IsParked(worker) ? "a spare worker" : absl::StrCat("rank ", start_.rank_first + worker);
  console_.WriteLine(
      OutputStream::kErr,
      absl::StrCat("ddprun: ", who, " is killed because its output cannot be watched: ", why));
  processes_.SignalGroup(static_cast<std::size_t>(worker), SIGKILL);
}

std::optional<pid_t> Workers::pid(int local_rank) const {
  const auto index = static_cast<std::size_t>(local_rank);
  if (index >= processes_.size() || processes_.pid(index) <= 0) return std::nullopt;
  return processes_.pid(index);
}

bool Workers::IsLive(int local_rank) const {
  return processes_.IsLive(static_cast<std::size_t>(local_rank));
}

bool Workers::IsRunning(int worker) const {
  return processes_.IsLive(static_cast<std::size_t>(worker)) && !IsParked(worker) &&
         !Of(worker).left;
}

std::string Workers::RankFile(int local_rank, const char* name) const {
  const WorkerPlan& plan = log_plan_.workers[static_cast<std::size_t>(local_rank)];
  if (plan.out.file.empty() && plan.err.file.empty()) return "";
  return absl::StrCat(RankLogFolder(log_round_, local_rank), "/", name);
}

void Workers::FailToSpawn(const std::string& reason, TimePoint now, std::vector<Event>& events) {
  starting_ = Starting::kNo;
  write_ends_.clear();
  deferred_stops_.clear();
  deferred_forwards_.clear();
  // Those that were told of no round are as if they had left it.
  for (int i = 0; i < size(); ++i) Of(i).left = Of(i).carried;
  WorkerEnded ended;
  ended.outcome = SpawnFailed{126, reason};
  events.push_back(std::move(ended));
  FinishIfAllGone(now, events);
}

// ---- Output

absl::Status Workers::TakeLogFolder(TimePoint now) {
  auto folder = TakeResult(log_folder_);
  if (!folder.has_value()) {
    if (now < starting_deadline_) return absl::OkStatus();
    return absl::UnavailableError(
        "the disk of the folder for logs ($TMPDIR or /tmp) does not answer; name another folder "
        "with --log-dir");
  }
  if (!folder->ok()) return folder->status();
  log_round_.log_dir = **folder;
  log_folder_made_ = true;
  return OpenLogs(now);
}

absl::Status Workers::OpenLogs(TimePoint now) {
  log_round_.run_id = start_.run_id;
  log_round_.host = config_.host;
  log_round_.role = config_.options.role;
  log_round_.roles.clear();
  for (int i = 0; i < size() && ShowsRoles(config_.options); ++i)
    log_round_.roles.push_back(RoleOf(i).name);
  log_round_.round = ToNumber(start_.round);
  log_round_.node_rank = start_.node_rank;
  log_round_.node_count = start_.node_count;
  log_round_.rank_first = start_.rank_first;
  log_round_.local_world_size = config_.local_world_size();
  if (std::exchange(log_folder_made_, false)) {
    console_.WriteLine(OutputStream::kErr,
                       absl::StrCat("ddprun: logs are in ", RunLogFolder(log_round_)));
  } else if (log_round_.log_dir.empty() && !WantsNoFiles(config_.options.logs)) {
    log_round_.log_dir = config_.options.logs.log_dir;
    log_round_.log_dir_is_chosen = true;
  }
  log_plan_ = PlanLogs(config_.options.logs, log_round_);
  if (log_round_.log_dir_is_chosen)
    console_.SetHint(absl::StrCat("all are in ", RunLogFolder(log_round_)));
  starting_ = Starting::kLogFiles;
  starting_deadline_ = now + kLogOpenTimeout;
  std::vector<bool> kept;
  for (int i = 0; i < size(); ++i) kept.push_back(Of(i).carried);
  return log_mux_.StartRound(log_plan_, kept, write_ends_);
}

// Not in the log folder, whose disk may hang, and in which an earlier run may have left one.
std::string Workers::ErrorFile(int local_rank) const {
  const WorkerPlan& plan = log_plan_.workers[static_cast<std::size_t>(local_rank)];
  return absl::StrCat(config_.temp_dir, "/error_", ToNumber(start_.round), "_", plan.rank, ".json");
}

}  // namespace ddprun
