// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/core_file.h"
#include "launcher/limits.h"
#include "launcher/orphans.h"
#include "launcher/worker_environ.h"
#include "proto/failure_record.h"
#include "rendezvous/first_cause.h"

namespace ddprun {
namespace {

Source SourceOf(OutputStream stream) {
  return stream == OutputStream::kOut ? Source::kWorkerOut : Source::kWorkerErr;
}

}  // namespace

void Workers::Spawn(const Start& start, TimePoint now, std::vector<Event>& events) {
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
                       .out = -1,
                       .err = -1,
                       .signal_mask = config_.signal_mask};
  processes_.Clear();
  stopped_.assign(static_cast<std::size_t>(config_.local_world_size), false);
  was_failing_ = stopped_;
  oom_watch_.Begin();
  round_live_ = true;
  for (int local_rank = 0; local_rank < config_.local_world_size; ++local_rank) {
    env.rank = start.rank_first + local_rank;
    env.local_rank = local_rank;
    env.error_file = ErrorFile(start, local_rank);
    request.environ = WorkerEnviron(inherited, env, config_.cpus);
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
      ends_.Add(processes_.pidfd(index), {Source::kWorkerEnd, local_rank});
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
  TakeEnded(now, events);
}

void Workers::TakeEnded(TimePoint now, std::vector<Event>& events) {
  bool any = true;
  while (any) {
    any = false;
    for (const Ready& ready : ends_.Wait(TimePoint{})) {
      const auto index = static_cast<std::size_t>(ready.worker);
      std::optional<OomKill> oom;
      const std::optional<Outcome> outcome = processes_.Look(index);
      const auto* signaled = outcome.has_value() ? std::get_if<Signaled>(&*outcome) : nullptr;
      if (signaled != nullptr && signaled->signal == SIGKILL && !stopped_[index]) {
        oom = oom_watch_.Explain(processes_.pid(index));
      }
      if (!processes_.ReapIfEnded(index)) continue;
      any = true;
      log_mux_.Drain(ready.worker, now);
      WorkerEnded ended = MakeEnded(ready.worker, now);
      ended.oom = oom;
      events.push_back(std::move(ended));
    }
  }
  FinishIfAllGone(now, events);
}

void Workers::Signal(int signal, TimePoint now, std::vector<Event>& events) {
  if (!round_live_) return;
  TakeEnded(now, events);
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (processes_.outcome(i).has_value() || stopped_[i] || was_failing_[i]) continue;
    was_failing_[i] = HasSaidThatItFailed(static_cast<int>(i));
    stopped_[i] = !was_failing_[i];
  }
  processes_.SignalGroups(signal);
}

// A program that has failed may take long to end (Python's interpreter tears down what a peer is
// waiting for), longer than its peers take to fail for want of it.
bool Workers::HasSaidThatItFailed(int local_rank) const {
  return access(ErrorFile(start_, local_rank).c_str(), F_OK) == 0 ||
         EndsInTraceback(log_mux_.LastLinesOf(local_rank));
}

void Workers::FinishIfAllGone(TimePoint now, std::vector<Event>& events) {
  if (!round_live_ || processes_.AnyLive()) return;
  // Whatever the workers have left behind, also in sessions of its own, is this process's child by
  // now: no process of a round may live into the next one.
  for (const pid_t pid : KillAllChildren(kSweepTimeout)) {
    console_.WriteLine(OutputStream::kErr,
                       absl::StrCat("ddprun: process ", pid,
                                    ", left by a worker, does not end after SIGKILL: it hangs "
                                    "in the kernel and is left behind"),
                       now);
  }
  SetReading(false);
  log_mux_.EndRound(now);
  round_live_ = false;
  events.push_back(AllGone{});
}

void Workers::ReapOrphansOfWorkers() {
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
  ended.stopped = stopped_[index];
  ended.last_lines = log_mux_.LastLinesOf(local_rank);
  // A worker without a record, or with one that nobody can read, has said nothing.
  FailureRecord record = ReadFailureRecord(ErrorFile(start_, local_rank)).value_or(FailureRecord{});
  ended.message = std::move(record.message);
  ended.traceback = std::move(record.traceback);
  const auto* signaled = std::get_if<Signaled>(&ended.outcome);
  // Ended by this agent on its way out: the code that a program which failed by itself has.
  if (signaled != nullptr && was_failing_[index]) ended.outcome = Exited{1};
  if (signaled != nullptr && signaled->core_dumped) {
    ended.core_file = FindCoreOf(static_cast<pid_t>(ended.pid), signaled->signal);
  }
  return ended;
}

}  // namespace ddprun
