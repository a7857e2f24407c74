// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/workers.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/temp_dir.h"
#include "launcher/placement/worker_environ.h"
#include "launcher/processes/orphans.h"
#include "launcher/processes/process_stat.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/values/first_cause.h"

namespace ddprun {
namespace {

Source SourceOf(OutputStream stream) {
  return stream == OutputStream::kOut ? Source::kWorkerOut : Source::kWorkerErr;
}

}  // namespace

Workers::Workers(const NodeConfig& config, Poller& poller, Console& console,
                 const Background& background)
    : config_(config),
      poller_(poller),
      console_(console),
      background_(background),
      log_mux_(console, config_.options.logs.fold),
      spawner_(background.Waker()),
      evidence_(background, [this](int local_rank, const std::string& record) {
        log_mux_.KeepRecord(local_rank, record);
      }) {}

// ---- Starting

void Workers::Spawn(const Start& start, const std::vector<std::string>& network, TimePoint now,
                    std::vector<Event>& events) {
  start_ = start;
  network_ = network;
  processes_.Clear();  // so that a round that cannot start has none
  held_.clear();
  stopped_.assign(static_cast<std::size_t>(config_.local_world_size()), false);
  was_failing_ = stopped_;
  was_ending_ = stopped_;
  sent_signals_.clear();
  round_live_ = true;
  if (NeedsTemporaryLogDir(config_.options.logs) && log_round_.log_dir.empty()) {
    log_folder_ = background_.Start<absl::StatusOr<std::string>>([] { return MakeLogDir(); });
    starting_ = Starting::kLogFolder;
    starting_deadline_ = now + kLogOpenTimeout;
    return;
  }
  FinishSpawn(OpenLogs(now), events);
  ContinueSpawn(now, events);
}

// After each step. A failure ends the start.
void Workers::FinishSpawn(const absl::Status& status, std::vector<Event>& events) {
  if (status.ok()) return;
  starting_ = Starting::kNo;
  FailToSpawn(std::string(status.message()), events);
}

void Workers::OnTurn(TimePoint now, std::vector<Event>& events) {
  if (awaits_evidence_ || (next_sweep_.has_value() && *next_sweep_ <= now))
    FinishIfAllGone(now, events);
  ContinueSpawn(now, events);
  evidence_.Release(now, events);
}

void Workers::ContinueSpawn(TimePoint now, std::vector<Event>& events) {
  if (starting_ == Starting::kLogFolder) FinishSpawn(TakeLogFolder(now), events);
  if (starting_ == Starting::kLogFiles) {
    std::optional<absl::Status> opened = log_mux_.Opened();
    if (!opened.has_value() && now >= starting_deadline_) opened = log_mux_.GoOnUnopened();
    if (opened.has_value() && opened->ok()) StartProcesses(now);
    if (opened.has_value()) FinishSpawn(*opened, events);
  }
  if (starting_ == Starting::kProcesses) {
    if (auto spawned = spawner_.Take()) {
      starting_ = Starting::kNo;
      TakeSpawned(*std::move(spawned), now, events);
    } else if (now >= starting_deadline_) {
      starting_deadline_ = TimePoint::max();
      console_.WriteLine(OutputStream::kErr,
                         absl::StrCat("ddprun: the disk of ", config_.program.path,
                                      " does not answer: the workers are not started yet"));
    }
  }
}

std::optional<TimePoint> Workers::NextDeadline() const {
  const bool waits_for_start = IsStarting() && starting_deadline_ != TimePoint::max();
  return Earliest({next_sweep_, waits_for_start ? std::optional(starting_deadline_) : std::nullopt,
                   evidence_.NextDeadline()});
}

WorkerEnv Workers::EnvironmentOf(const Start& start) const {
  WorkerEnv env;
  env.world_size = start.world_size;
  env.local_world_size = config_.local_world_size();
  env.group_rank = start.node_rank;
  env.group_world_size = start.node_count;
  env.role = config_.options.role;
  env.role_world_size = start.role_world_size;
  env.master_addr = start.master_addr;
  env.master_port = start.master_port;
  env.restart_count = start.restart_count;
  env.max_restarts = start.restarts_max;
  env.run_id = start.run_id;
  env.agent_socket = config_.agent_socket();
  env.round = ToNumber(start.round);
  env.console_is_terminal = console_.IsTerminal();
  return env;
}

void Workers::StartProcesses(TimePoint now) {
  started_ = now;
  started_on_wall_ = std::chrono::system_clock::now();
  WorkerEnv env = EnvironmentOf(start_);
  // The run continues without these sockets, which few programs need.
  const absl::Status progress =
      progress_.Open(config_.temp_dir, env.round, config_.local_world_size());
  if (!progress.ok()) {
    progress_.Close();
    ReportMissingProgress(std::string(progress.message()));
  }
  oom_watch_.Begin();
  if (config_.cgroup != nullptr) round_cgroup_ = config_.cgroup->MakeRound(start_.round);
  spawn_cgroup_ = OwnedFd(
      round_cgroup_.empty() ? -1 : open(round_cgroup_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::vector<std::string> inherited = OwnEnviron();
  std::vector<SpawnRequest> requests;
  for (int local_rank = 0; local_rank < config_.local_world_size(); ++local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    env.rank = start_.rank_first + local_rank;
    env.local_rank = local_rank;
    env.role_rank = start_.role_rank_first + local_rank;
    env.error_file = ErrorFile(local_rank);
    if (progress.ok()) env.notify_socket = progress_.path(local_rank);
    const Place& place = config_.places[index];
    requests.push_back({.path = config_.program.path,
                        .argv = ArgumentsOf(config_.program, local_rank),
                        .environ = WorkerEnviron(inherited, env, place, network_),
                        .in = -1,
                        .out = write_ends_[index].out.get(),
                        .err = write_ends_[index].err.get(),
                        .cpus = place.cpus,
                        .memory_nodes = place.memory_nodes,
                        .signal_mask = config_.worker_signal_mask,
                        .cgroup = spawn_cgroup_.get()});
  }
  starting_ = Starting::kProcesses;
  starting_deadline_ = now + kSpawnNoticeDelay;
  spawner_.Begin(std::move(requests), processes_.file_limit());
}

void Workers::TakeSpawned(std::vector<Spawned> spawned, TimePoint now, std::vector<Event>& events) {
  processes_.Adopt(std::move(spawned));
  newly_started_ = true;
  if (!deferred_signals_.empty()) stopped_.assign(processes_.size(), true);
  sent_signals_.insert(deferred_signals_.begin(), deferred_signals_.end());
  write_ends_.clear();  // so that a pipe ends with the worker
  spawn_cgroup_.Reset();
  for (const LogMux::Pipe& pipe : log_mux_.OpenPipes())
    if (!poller_.Add(pipe.fd, {SourceOf(pipe.stream), pipe.worker}))
      EndUnwatched(pipe.worker, ErrnoText(errno));
  for (int local_rank = 0; local_rank < static_cast<int>(progress_.size()); ++local_rank) {
    if (!poller_.Add(progress_.fd(local_rank), {Source::kWorkerProgress, local_rank}))
      ReportMissingProgress(ErrnoText(errno));
  }
  for (int local_rank = 0; local_rank < config_.local_world_size(); ++local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    if (processes_.outcome(index).has_value()) {
      AddEnded(local_rank, std::nullopt, now);
    } else {
      // SIGCHLD reports the end if the pidfd cannot be watched.
      if (!ends_.Add(processes_.pidfd(index), {Source::kWorkerEnd, local_rank}))
        held_.insert(local_rank);
    }
  }
  for (const int signal : std::exchange(deferred_forwards_, {})) Forward(signal);
  for (const int signal : std::exchange(deferred_signals_, {})) processes_.SignalGroups(signal);
  FinishIfAllGone(now, events);
}

void Workers::Forward(int signal) {
  if (IsStarting()) return deferred_forwards_.push_back(signal);
  processes_.SignalProcesses(signal);
}

void Workers::ReportMissingProgress(const std::string& why) {
  console_.WriteLine(OutputStream::kErr,
                     absl::StrCat("ddprun: cannot receive the workers' progress: ", why));
}

// Its output could not be read, and it would block once its pipe is full.
void Workers::EndUnwatched(int local_rank, const std::string& why) {
  console_.WriteLine(OutputStream::kErr,
                     absl::StrCat("ddprun: rank ", start_.rank_first + local_rank,
                                  " is killed because its output cannot be watched: ", why));
  processes_.SignalGroup(static_cast<std::size_t>(local_rank), SIGKILL);
}

std::optional<pid_t> Workers::pid(int local_rank) const {
  const auto index = static_cast<std::size_t>(local_rank);
  if (index >= processes_.size() || processes_.pid(index) <= 0) return std::nullopt;
  return processes_.pid(index);
}

bool Workers::IsLive(int local_rank) const {
  return pid(local_rank).has_value() &&
         !processes_.outcome(static_cast<std::size_t>(local_rank)).has_value();
}

std::string Workers::StacksFile(int local_rank) const {
  const WorkerPlan& plan = log_plan_.workers[static_cast<std::size_t>(local_rank)];
  if (plan.out.file.empty() && plan.err.file.empty()) return "";
  return absl::StrCat(RankLogFolder(log_round_, local_rank), "/stacks.txt");
}

void Workers::FailToSpawn(const std::string& reason, std::vector<Event>& events) {
  WorkerEnded ended;
  ended.outcome = SpawnFailed{126, reason};
  round_live_ = false;
  write_ends_.clear();
  deferred_signals_.clear();
  deferred_forwards_.clear();
  events.push_back(std::move(ended));
  events.push_back(AllGone{});
}

// ---- Ends

void Workers::OnReady(const Ready& ready, TimePoint now, std::vector<Event>& events) {
  if (!round_live_) return;
  if (ready.source != Source::kWorkerEnd) {
    const OutputStream stream =
        ready.source == Source::kWorkerOut ? OutputStream::kOut : OutputStream::kErr;
    log_mux_.Read(ready.worker, stream, now);  // epoll drops a closed pipe
    return;
  }
  TakeEnded(now, events);
}

void Workers::TakeEnded(TimePoint now, std::vector<Event>& events) {
  bool any = true;
  while (any) {
    any = false;
    for (const Ready& ready : ends_.Wait(TimePoint{})) {
      any = ReapWorker(ready.worker, now, events) || any;
    }
  }
  FinishIfAllGone(now, events);
}

bool Workers::ReapWorker(int local_rank, TimePoint now, std::vector<Event>& events) {
  const auto index = static_cast<std::size_t>(local_rank);
  std::optional<OomKill> oom;
  const std::optional<Outcome> outcome = processes_.Look(index);
  const auto* signaled = outcome.has_value() ? std::get_if<Signaled>(&*outcome) : nullptr;
  if (signaled != nullptr && signaled->signal == SIGKILL && !WasStopped(index, *outcome)) {
    oom = oom_watch_.Explain(processes_.pid(index));
  }
  if (!processes_.ReapIfEnded(index)) {
    // Its pidfd stays readable and would make the loop spin until the debugger ends.
    if (held_.insert(local_rank).second) ends_.Remove(processes_.pidfd(index));
    return false;
  }
  held_.erase(local_rank);
  log_mux_.Drain(local_rank, now);
  AddEnded(local_rank, std::move(oom), now);
  evidence_.Release(now, events);
  return true;
}

void Workers::Signal(int signal, TimePoint now, std::vector<Event>& events) {
  if (!round_live_) return;
  if (IsStarting()) return deferred_signals_.push_back(signal);
  TakeEnded(now, events);
  const std::vector<bool> recorded = WorkersWithRecord();
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (processes_.outcome(i).has_value() || stopped_[i] || was_failing_[i]) continue;
    // A failed program may take longer to end (teardown of the Python interpreter) than its peers
    // take to fail without it.
    was_failing_[i] = recorded[i] || EndsInTraceback(log_mux_.LastLinesOf(static_cast<int>(i)));
    was_ending_[i] = IsEnding(processes_.pid(i));
    stopped_[i] = !was_failing_[i];
  }
  sent_signals_.insert(signal);
  processes_.SignalGroups(signal);
}

bool Workers::WasStopped(std::size_t index, const Outcome& outcome) const {
  if (!stopped_[index] || !was_ending_[index]) return stopped_[index];
  // A process of which only the first thread had ended is ended by the signal.
  const auto* signaled = std::get_if<Signaled>(&outcome);
  return signaled != nullptr && sent_signals_.contains(signaled->signal);
}

// By local rank. With a deadline, since even a local disk may hang.
std::vector<bool> Workers::WorkersWithRecord() const {
  std::vector<std::string> files;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const bool live = !processes_.outcome(i).has_value() && !stopped_[i] && !was_failing_[i];
    files.push_back(live ? ErrorFile(static_cast<int>(i)) : "");
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

void Workers::FinishIfAllGone(TimePoint now, std::vector<Event>& events) {
  if (!round_live_ || IsStarting() || processes_.AnyLive()) return;
  if (!sweep_deadline_.has_value()) {
    KillCgroup(round_cgroup_);
    sweep_deadline_ = now + kSweepTimeout;
  }
  // All processes that the workers left behind, also in other sessions, are this process's children
  // by now: no process of a round may survive into the next one. Does not block the loop, because
  // giving up a process that hangs in the kernel may take longer than the lease.
  const std::optional<std::vector<pid_t>> left = KillChildrenOnce();
  if (left.has_value() && now < *sweep_deadline_) {
    next_sweep_ = now + kSweepInterval;
    return;
  }
  if (left.has_value()) {
    for (const pid_t pid : *left) ReportStuckProcess(pid, kSweepTimeout);
  }
  // Reports the ends before the end of the round.
  evidence_.Release(now, events);
  awaits_evidence_ = !evidence_.empty();
  next_sweep_.reset();
  if (awaits_evidence_) return;
  sweep_deadline_.reset();
  log_mux_.EndRound(now);  // epoll drops closed pipes
  RemoveCgroup(std::exchange(round_cgroup_, ""));
  progress_.Close();
  round_live_ = false;
  events.push_back(AllGone{});
}

void Workers::Kill(TimePoint now, std::vector<Event>& events) {
  Signal(SIGKILL, now, events);
  KillCgroup(round_cgroup_);
  if (starting_ != Starting::kProcesses) return;
  // Only the spawner knows a process that waits for its program's disk.
  spawner_.Cancel();
  KillChildrenOnce();
}

void Workers::KillOne(int local_rank, TimePoint now, std::vector<Event>& events) {
  if (!round_live_) return;
  TakeEnded(now, events);
  if (!IsLive(local_rank)) return;
  const auto index = static_cast<std::size_t>(local_rank);
  stopped_[index] = !was_failing_[index];
  sent_signals_.insert(SIGKILL);
  processes_.SignalGroup(index, SIGKILL);
}

void Workers::ReportStuck() {
  if (starting_ == Starting::kProcesses) {
    console_.WriteLine(OutputStream::kErr,
                       absl::StrCat("ddprun: the workers could not be started: the disk of ",
                                    config_.program.path, " does not answer; check that disk"));
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (!processes_.outcome(i).has_value()) ReportStuckProcess(processes_.pid(i), kKillTimeout);
  }
}

void Workers::ReportStuckProcess(pid_t pid, std::chrono::seconds after_kill) {
  const std::string text = ToText(LookAtStuckProcess(pid), after_kill);
  for (const absl::string_view line : absl::StrSplit(absl::StrCat("ddprun: ", text), '\n')) {
    console_.WriteLine(OutputStream::kErr, std::string(line));
  }
}

void Workers::OnChildEnded(TimePoint now, std::vector<Event>& events) {
  for (const int local_rank : std::set<int>(held_)) ReapWorker(local_rank, now, events);
  if (IsStarting()) return;  // processes of the spawner are not known here yet
  FinishIfAllGone(now, events);
  ReapOrphans([this](pid_t pid) {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (processes_.pid(i) == pid && !processes_.outcome(i).has_value()) return true;
    }
    return false;
  });
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
  return log_mux_.StartRound(log_plan_, write_ends_);
}

// Not in the log folder, whose disk may hang, and in which an earlier run may have left one.
std::string Workers::ErrorFile(int local_rank) const {
  const WorkerPlan& plan = log_plan_.workers[static_cast<std::size_t>(local_rank)];
  return absl::StrCat(config_.temp_dir, "/error_", ToNumber(start_.round), "_", plan.rank, ".json");
}

// Last lines and `stopped` are known at once; record and core are read from disks.
void Workers::AddEnded(int local_rank, std::optional<OomKill> oom, TimePoint now) {
  const auto index = static_cast<std::size_t>(local_rank);
  WorkerEnded ended;
  ended.local_rank = local_rank;
  ended.outcome = *processes_.outcome(index);
  ended.pid = processes_.pid(index);
  ended.age = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  ended.oom = std::move(oom);
  std::vector<RanksInPlace> places;
  if (on_ended_) places = on_ended_(local_rank);
  if (IsSuccess(ended.outcome)) return evidence_.Add(std::move(ended));
  ended.stopped = WasStopped(index, ended.outcome);
  if (!ended.stopped) ended.places = std::move(places);
  ended.last_lines = log_mux_.LastLinesOf(local_rank);
  WorkerEvidence::Question question{.record_file = ErrorFile(local_rank)};
  const auto* signaled = std::get_if<Signaled>(&ended.outcome);
  if (signaled != nullptr && signaled->core_dumped) {
    question.core_of_start = started_on_wall_;
    question.signal = signaled->signal;
  }
  // It had failed before this agent's signal ended it: the exit code of a program that fails by
  // itself.
  if (signaled != nullptr && was_failing_[index]) ended.outcome = Exited{1};
  evidence_.Add(std::move(ended), std::move(question), now);
}

}  // namespace ddprun
