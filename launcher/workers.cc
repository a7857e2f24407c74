// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/limits.h"
#include "launcher/orphans.h"
#include "launcher/stuck_process.h"
#include "launcher/worker_environ.h"
#include "proto/failure_record.h"

namespace ddprun {
namespace {

Source SourceOf(OutputStream stream) {
  return stream == OutputStream::kOut ? Source::kWorkerOut : Source::kWorkerErr;
}

}  // namespace

void Workers::Spawn(const Start& start, const std::vector<std::string>& network, TimePoint now,
                    std::vector<Event>& events) {
  start_ = start;
  started_ = now;
  std::vector<LogMux::WriteEnds> write_ends;
  const absl::Status status = log_mux_.StartRound(LogWorkers(start), write_ends);
  if (!status.ok()) return FailToSpawn(std::string(status.message()), events);

  WorkerEnv env;
  env.world_size = start.world_size;
  env.local_world_size = config_.local_world_size;
  env.group_rank = start.node_rank;
  env.group_world_size = start.node_count;
  env.role = config_.role;
  env.master_addr = start.master_addr;
  env.master_port = start.master_port;
  env.restart_count = start.restart_count;
  env.max_restarts = start.restarts_max;
  env.run_id = start.run_id;
  env.agent_socket = config_.agent_socket;
  env.round = ToNumber(start.round);
  env.console_is_terminal = console_.IsTerminal();

  const std::vector<std::string> inherited = OwnEnviron();
  SpawnRequest request{.path = config_.program.path,
                       .argv = config_.program.argv,
                       .environ = {},
                       .in = -1,
                       .out = -1,
                       .err = -1,
                       .signal_mask = config_.signal_mask,
                       .cgroup = -1};
  processes_.Clear();
  held_.clear();
  round_live_ = true;
  if (config_.cgroup != nullptr) round_cgroup_ = config_.cgroup->MakeRound(start.round);
  const OwnedFd cgroup(
      round_cgroup_.empty() ? -1 : open(round_cgroup_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  request.cgroup = cgroup.get();
  for (int local_rank = 0; local_rank < config_.local_world_size; ++local_rank) {
    env.rank = start.rank_first + local_rank;
    env.local_rank = local_rank;
    env.error_file = ErrorFile(start, local_rank);
    const Place& place = config_.places[static_cast<std::size_t>(local_rank)];
    request.environ = WorkerEnviron(inherited, env, place, network);
    request.cpus = place.cpus;
    request.memory_nodes = place.memory_nodes;
    request.out = write_ends[static_cast<std::size_t>(local_rank)].out.get();
    request.err = write_ends[static_cast<std::size_t>(local_rank)].err.get();
    processes_.Spawn(request);
  }
  write_ends.clear();  // so that a pipe ends with the worker
  SetReading(true);
  for (int local_rank = 0; local_rank < config_.local_world_size; ++local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    if (processes_.outcome(index).has_value()) {
      events.push_back(MakeEnded(local_rank, now));
    } else {
      poller_.Add(processes_.pidfd(index), {Source::kWorkerEnd, local_rank});
    }
  }
  FinishIfAllGone(now, events);
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
  ReapWorker(ready.worker, now, events);
}

void Workers::ReapWorker(int local_rank, TimePoint now, std::vector<Event>& events) {
  const auto index = static_cast<std::size_t>(local_rank);
  if (!processes_.ReapIfEnded(index)) {
    // Its pidfd stays readable: out of the poller, or the loop would spin until the debugger's end.
    if (held_.insert(local_rank).second) poller_.Remove(processes_.pidfd(index));
    return;
  }
  held_.erase(local_rank);
  log_mux_.Drain(local_rank, now);
  events.push_back(MakeEnded(local_rank, now));
  FinishIfAllGone(now, events);
}

void Workers::FinishIfAllGone(TimePoint now, std::vector<Event>& events) {
  if (!round_live_ || processes_.AnyLive()) return;
  KillCgroup(round_cgroup_);
  // Whatever the workers have left behind, also in sessions of its own, is this process's child by
  // now: no process of a round may live into the next one.
  for (const pid_t pid : KillAllChildren(kSweepTimeout)) SayStuck(pid, kSweepTimeout, now);
  SetReading(false);
  log_mux_.EndRound(now);
  RemoveCgroup(std::exchange(round_cgroup_, ""));
  round_live_ = false;
  events.push_back(AllGone{});
}

void Workers::Kill() {
  Signal(SIGKILL);
  KillCgroup(round_cgroup_);
}

void Workers::ReportStuck(TimePoint now) {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (!processes_.outcome(i).has_value()) SayStuck(processes_.pid(i), kKillTimeout, now);
  }
}

void Workers::SayStuck(pid_t pid, std::chrono::seconds after_kill, TimePoint now) {
  const std::string text = ToText(LookAtStuckProcess(pid), after_kill);
  for (const absl::string_view line : absl::StrSplit(absl::StrCat("ddprun: ", text), '\n')) {
    console_.WriteLine(OutputStream::kErr, std::string(line), now);
  }
}

void Workers::OnChildEnded(TimePoint now, std::vector<Event>& events) {
  for (const int local_rank : std::set<int>(held_)) ReapWorker(local_rank, now, events);
  ReapOrphans([this](pid_t pid) {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (processes_.pid(i) == pid && !processes_.outcome(i).has_value()) return true;
    }
    return false;
  });
}

void Workers::UpdateBackpressure(TimePoint now) {
  if (round_live_) SetReading(!console_.IsFull(now));
}

void Workers::SetReading(bool reading) {
  if (reading == reading_) return;
  reading_ = reading;
  for (const LogMux::Pipe& pipe : log_mux_.OpenPipes()) {
    if (reading) {
      poller_.Add(pipe.fd, {SourceOf(pipe.stream), pipe.worker});
    } else {
      poller_.Remove(pipe.fd);
    }
  }
}

std::vector<LogMux::Worker> Workers::LogWorkers(const Start& start) const {
  std::vector<LogMux::Worker> workers;
  for (int local_rank = 0; local_rank < config_.local_world_size; ++local_rank) {
    const int rank = start.rank_first + local_rank;
    const std::string name =
        start.node_count > 1 ? absl::StrCat(config_.host, ":", rank) : absl::StrCat(rank);
    workers.push_back({.rank = rank,
                       .prefix = absl::StrCat("[", name, "] "),
                       .log_folder = LogFolder(start, local_rank)});
  }
  return workers;
}

std::string Workers::LogFolder(const Start& start, int local_rank) const {
  if (config_.log_dir.empty()) return "";
  return absl::StrCat(config_.log_dir, "/", start.run_id, "/round_", ToNumber(start.round),
                      "/rank_", start.rank_first + local_rank);
}

std::string Workers::ErrorFile(const Start& start, int local_rank) const {
  if (!config_.log_dir.empty()) return absl::StrCat(LogFolder(start, local_rank), "/error.json");
  return absl::StrCat(config_.temp_dir, "/error_", ToNumber(start.round), "_",
                      start.rank_first + local_rank, ".json");
}

WorkerEnded Workers::MakeEnded(int local_rank, TimePoint now) const {
  const auto index = static_cast<std::size_t>(local_rank);
  WorkerEnded ended;
  ended.local_rank = local_rank;
  ended.outcome = *processes_.outcome(index);
  ended.pid = processes_.pid(index);
  ended.age = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  if (IsSuccess(ended.outcome)) return ended;
  ended.last_lines = log_mux_.LastLinesOf(local_rank);
  // A worker without a record, or with one that nobody can read, has said nothing.
  ended.message = ReadFailureRecord(ErrorFile(start_, local_rank)).value_or("");
  return ended;
}

}  // namespace ddprun
