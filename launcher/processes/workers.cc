// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/workers.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/disk_limits.h"
#include "launcher/base/limits.h"
#include "launcher/base/temp_dir.h"
#include "launcher/processes/core_file.h"
#include "launcher/processes/orphans.h"
#include "launcher/processes/process_exiting.h"
#include "launcher/processes/stuck_process.h"
#include "launcher/processes/worker_environ.h"
#include "proto/failure_record.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/values/first_cause.h"

namespace ddprun {
namespace {

// A worker may have put anything there: a pipe is not waited for.
std::string ReadStart(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  std::string text;
  std::array<char, 1 << 16> part;
  while (fd.valid() && text.size() < kRecordBytesMax) {
    const ssize_t count = read(fd.get(), part.data(), part.size());
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

Source SourceOf(OutputStream stream) {
  return stream == OutputStream::kOut ? Source::kWorkerOut : Source::kWorkerErr;
}

}  // namespace

void Workers::Spawn(const Start& start, const std::vector<std::string>& network, TimePoint now,
                    std::vector<Event>& events) {
  start_ = start;
  started_ = now;
  started_on_wall_ = std::chrono::system_clock::now();
  processes_.Clear();  // a round that cannot start has none, and not those of the last one
  std::vector<LogMux::WriteEnds> write_ends;
  const absl::Status status = StartLogs(write_ends);
  if (!status.ok()) return FailToSpawn(std::string(status.message()), events);

  WorkerEnv env;
  env.world_size = start.world_size;
  env.local_world_size = config_.local_world_size;
  env.group_rank = start.node_rank;
  env.group_world_size = start.node_count;
  env.role = config_.role;
  env.role_world_size = start.role_world_size;
  env.master_addr = start.master_addr;
  env.master_port = start.master_port;
  env.restart_count = start.restart_count;
  env.max_restarts = start.restarts_max;
  env.run_id = start.run_id;
  env.agent_socket = config_.agent_socket;
  env.round = ToNumber(start.round);
  env.console_is_terminal = console_.IsTerminal();
  // Without such a socket, which few need, the run goes on.
  const absl::Status progress =
      progress_.Open(config_.temp_dir, env.round, config_.local_world_size);
  if (!progress.ok()) {
    progress_.Close();
    SayProgressIsNotHeard(std::string(progress.message()));
  }

  const std::vector<std::string> inherited = OwnEnviron();
  SpawnRequest request{.path = config_.program.path,
                       .argv = {},
                       .environ = {},
                       .in = -1,
                       .out = -1,
                       .err = -1,
                       .signal_mask = config_.signal_mask,
                       .cgroup = -1};
  held_.clear();
  stopped_.assign(static_cast<std::size_t>(config_.local_world_size), false);
  was_failing_ = stopped_;
  was_ending_ = stopped_;
  sent_signals_.clear();
  oom_watch_.Begin();
  round_live_ = true;
  if (config_.cgroup != nullptr) round_cgroup_ = config_.cgroup->MakeRound(start.round);
  const OwnedFd cgroup(
      round_cgroup_.empty() ? -1 : open(round_cgroup_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  request.cgroup = cgroup.get();
  for (int local_rank = 0; local_rank < config_.local_world_size; ++local_rank) {
    env.rank = start.rank_first + local_rank;
    env.local_rank = local_rank;
    env.role_rank = start.role_rank_first + local_rank;
    env.error_file = ErrorFile(local_rank);
    if (progress.ok()) {
      env.notify_socket = progress_.path(local_rank);
      if (!poller_.Add(progress_.fd(local_rank), {Source::kWorkerProgress, local_rank}))
        SayProgressIsNotHeard(ErrnoText(errno));
    }
    const Place& place = config_.places[static_cast<std::size_t>(local_rank)];
    request.argv = ArgumentsOf(config_.program, local_rank);
    request.environ = WorkerEnviron(inherited, env, place, network);
    request.cpus = place.cpus;
    request.memory_nodes = place.memory_nodes;
    request.out = write_ends[static_cast<std::size_t>(local_rank)].out.get();
    request.err = write_ends[static_cast<std::size_t>(local_rank)].err.get();
    processes_.Spawn(request);
  }
  write_ends.clear();  // so that a pipe ends with the worker
  for (const LogMux::Pipe& pipe : log_mux_.OpenPipes())
    if (!poller_.Add(pipe.fd, {SourceOf(pipe.stream), pipe.worker}))
      EndUnwatched(pipe.worker, ErrnoText(errno));
  for (int local_rank = 0; local_rank < config_.local_world_size; ++local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    if (processes_.outcome(index).has_value()) {
      events.push_back(MakeEnded(local_rank, now));
    } else {
      // SIGCHLD tells of the end of one that cannot be watched.
      if (!ends_.Add(processes_.pidfd(index), {Source::kWorkerEnd, local_rank}))
        held_.insert(local_rank);
    }
  }
  FinishIfAllGone(now, events);
}

void Workers::SayProgressIsNotHeard(const std::string& why) {
  console_.WriteLine(OutputStream::kErr,
                     absl::StrCat("ddprun: the workers' progress is not heard: ", why));
}

// Its output could not be read, and it would stop as soon as its pipe is full.
void Workers::EndUnwatched(int local_rank, const std::string& why) {
  console_.WriteLine(OutputStream::kErr,
                     absl::StrCat("ddprun: rank ", start_.rank_first + local_rank,
                                  " is killed, since its output cannot be watched: ", why));
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
  events.push_back(std::move(ended));
  events.push_back(AllGone{});
}

void Workers::OnReady(const Ready& ready, TimePoint now, std::vector<Event>& events) {
  if (!round_live_) return;
  if (ready.source != Source::kWorkerEnd) {
    const OutputStream stream =
        ready.source == Source::kWorkerOut ? OutputStream::kOut : OutputStream::kErr;
    log_mux_.Read(ready.worker, stream, now);  // a closed pipe leaves the poller by itself
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
    // Its pidfd stays readable: out of the poller, or the loop would spin until the debugger's end.
    if (held_.insert(local_rank).second) ends_.Remove(processes_.pidfd(index));
    return false;
  }
  held_.erase(local_rank);
  log_mux_.Drain(local_rank, now);
  WorkerEnded ended = MakeEnded(local_rank, now);
  ended.oom = oom;
  events.push_back(std::move(ended));
  return true;
}

void Workers::Signal(int signal, TimePoint now, std::vector<Event>& events) {
  if (!round_live_) return;
  TakeEnded(now, events);
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (processes_.outcome(i).has_value() || stopped_[i] || was_failing_[i]) continue;
    was_failing_[i] = HasSaidThatItFailed(static_cast<int>(i));
    was_ending_[i] = IsEnding(processes_.pid(i));
    stopped_[i] = !was_failing_[i];
  }
  sent_signals_.insert(signal);
  processes_.SignalGroups(signal);
}

bool Workers::WasStopped(std::size_t index, const Outcome& outcome) const {
  if (!stopped_[index] || !was_ending_[index]) return stopped_[index];
  // One whose first thread alone had gone ends with the signal like the others.
  const auto* signaled = std::get_if<Signaled>(&outcome);
  return signaled != nullptr && sent_signals_.contains(signaled->signal);
}

// A program that has failed may take long to end (Python's interpreter tears down what a peer is
// waiting for), longer than its peers take to fail for want of it.
bool Workers::HasSaidThatItFailed(int local_rank) const {
  return access(ErrorFile(local_rank).c_str(), F_OK) == 0 ||
         EndsInTraceback(log_mux_.LastLinesOf(local_rank));
}

void Workers::FinishIfAllGone(TimePoint now, std::vector<Event>& events) {
  if (!round_live_ || processes_.AnyLive()) return;
  if (!sweep_deadline_.has_value()) {
    KillCgroup(round_cgroup_);
    sweep_deadline_ = now + kSweepTimeout;
  }
  // Whatever the workers have left behind, also in sessions of its own, is this process's child by
  // now: no process of a round may live into the next one. The loop is not held up meanwhile: one
  // that hangs in the kernel takes longer to give up than a lease may be.
  const std::optional<std::vector<pid_t>> left = KillChildrenOnce();
  if (left.has_value() && now < *sweep_deadline_) {
    next_sweep_ = now + kSweepInterval;
    return;
  }
  if (left.has_value()) {
    for (const pid_t pid : *left) SayStuck(pid, kSweepTimeout);
  }
  sweep_deadline_.reset();
  next_sweep_.reset();
  log_mux_.EndRound(now);  // closed pipes leave the poller by themselves
  RemoveCgroup(std::exchange(round_cgroup_, ""));
  progress_.Close();
  round_live_ = false;
  events.push_back(AllGone{});
}

void Workers::OnDeadline(TimePoint now, std::vector<Event>& events) {
  if (next_sweep_.has_value() && *next_sweep_ <= now) FinishIfAllGone(now, events);
}

void Workers::Kill(TimePoint now, std::vector<Event>& events) {
  Signal(SIGKILL, now, events);
  KillCgroup(round_cgroup_);
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
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (!processes_.outcome(i).has_value()) SayStuck(processes_.pid(i), kKillTimeout);
  }
}

void Workers::SayStuck(pid_t pid, std::chrono::seconds after_kill) {
  const std::string text = ToText(LookAtStuckProcess(pid), after_kill);
  for (const absl::string_view line : absl::StrSplit(absl::StrCat("ddprun: ", text), '\n')) {
    console_.WriteLine(OutputStream::kErr, std::string(line));
  }
}

void Workers::OnChildEnded(TimePoint now, std::vector<Event>& events) {
  for (const int local_rank : std::set<int>(held_)) ReapWorker(local_rank, now, events);
  FinishIfAllGone(now, events);
  ReapOrphans([this](pid_t pid) {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (processes_.pid(i) == pid && !processes_.outcome(i).has_value()) return true;
    }
    return false;
  });
}

// ---- Output

absl::Status Workers::StartLogs(std::vector<LogMux::WriteEnds>& write_ends) {
  log_round_.run_id = start_.run_id;
  log_round_.host = config_.host;
  log_round_.role = config_.role;
  log_round_.round = ToNumber(start_.round);
  log_round_.node_rank = start_.node_rank;
  log_round_.node_count = start_.node_count;
  log_round_.rank_first = start_.rank_first;
  log_round_.local_world_size = config_.local_world_size;
  if (log_round_.log_dir.empty()) {
    if (NeedsTemporaryLogDir(config_.logs)) {
      auto folder = CallWithDeadline<absl::StatusOr<std::string>>(disk_patience_,
                                                                  [] { return MakeLogDir(); });
      if (!folder.has_value()) {
        return absl::UnavailableError(
            "the disk of the folder for logs ($TMPDIR or /tmp) does not answer; name another "
            "folder with --log-dir");
      }
      if (!folder->ok()) return folder->status();
      log_round_.log_dir = **folder;
      console_.WriteLine(OutputStream::kErr,
                         absl::StrCat("ddprun: logs are in ", RunLogFolder(log_round_)));
    } else if (!WantsNoFiles(config_.logs)) {
      log_round_.log_dir = config_.logs.log_dir;
      log_round_.log_dir_is_chosen = true;
    }
  }
  log_plan_ = PlanLogs(config_.logs, log_round_);
  if (log_round_.log_dir_is_chosen)
    console_.SetHint(absl::StrCat("all are in ", RunLogFolder(log_round_)));
  return log_mux_.StartRound(log_plan_, write_ends, disk_patience_);
}

// Not in the log folder, whose disk may hang: the loop reads it. Nor can an earlier run have left
// one here.
std::string Workers::ErrorFile(int local_rank) const {
  const WorkerPlan& plan = log_plan_.workers[static_cast<std::size_t>(local_rank)];
  return absl::StrCat(config_.temp_dir, "/error_", ToNumber(start_.round), "_", plan.rank, ".json");
}

// The core is where the worker ran, which may be a file server's.
std::string Workers::LookForCore(pid_t pid, int signal) {
  if (core_folder_hangs_) return "";
  auto core = CallWithDeadline<std::string>(
      std::min<std::chrono::milliseconds>(disk_patience_, kDiskAnswerTimeout),
      [pid, signal, since = started_on_wall_] { return FindCoreOf(pid, signal, since); });
  core_folder_hangs_ = !core.has_value();
  return std::move(core).value_or("");
}

WorkerEnded Workers::MakeEnded(int local_rank, TimePoint now) {
  const auto index = static_cast<std::size_t>(local_rank);
  WorkerEnded ended;
  ended.local_rank = local_rank;
  ended.outcome = *processes_.outcome(index);
  ended.pid = processes_.pid(index);
  ended.age = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  if (IsSuccess(ended.outcome)) return ended;
  ended.stopped = WasStopped(index, ended.outcome);
  ended.last_lines = log_mux_.LastLinesOf(local_rank);
  // A worker without a record, or with one that nobody can read, has said nothing.
  const std::string record_file = ErrorFile(local_rank);
  FailureRecord record = ReadFailureRecord(record_file).value_or(FailureRecord{});
  log_mux_.KeepRecord(local_rank, ReadStart(record_file));
  ended.message = std::move(record.message);
  ended.traceback = std::move(record.traceback);
  const auto* signaled = std::get_if<Signaled>(&ended.outcome);
  // Ended by this agent on its way out: the code that a program which failed by itself has.
  if (signaled != nullptr && was_failing_[index]) ended.outcome = Exited{1};
  if (signaled != nullptr && signaled->core_dumped) {
    ended.core_file = LookForCore(static_cast<pid_t>(ended.pid), signaled->signal);
  }
  return ended;
}

}  // namespace ddprun
