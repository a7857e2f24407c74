// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/worker_table.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/processes/process_stat.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {
namespace {

Source SourceOf(OutputStream stream) {
  return stream == OutputStream::kOut ? Source::kWorkerOut : Source::kWorkerErr;
}

}  // namespace

WorkerTable::WorkerTable(const NodeConfig& config, Poller& poller, Console& console)
    : config_(config),
      poller_(poller),
      console_(console),
      log_mux_(console, config.options.logs.fold, config.options.logs.time),
      workers_(static_cast<std::size_t>(config.local_world_size())) {}

std::string WorkerTable::NameOf(int worker) const {
  return IsParked(worker) ? "a spare worker" : absl::StrCat("rank ", rank_first_ + worker);
}

bool WorkerTable::AllCanBeKept() const {
  for (int i = 0; i < size(); ++i) {
    if (!IsRunning(i) || !(*this)[i].can_be_kept) return false;
  }
  return true;
}

bool WorkerTable::AllSucceeded() const {
  for (int i = 0; i < size(); ++i) {
    if (Index(i) >= processes_.size() ||
        !IsSuccess(processes_.outcome(Index(i)).value_or(Exited{1})))
      return false;
  }
  return true;
}

std::vector<bool> WorkerTable::Kept() const {
  std::vector<bool> kept(workers_.size());
  for (int i = 0; i < count(); ++i) kept[Index(i)] = IsLive(i) && (IsParked(i) || (*this)[i].left);
  return kept;
}

bool WorkerTable::AnyKept() const {
  const std::vector<bool> kept = Kept();
  return std::find(kept.begin(), kept.end(), true) != kept.end();
}

bool WorkerTable::HasProcess(pid_t pid) const {
  for (int i = 0; i < count(); ++i) {
    if (IsLive(i) && processes_.pid(Index(i)) == pid) return true;
  }
  return false;
}

std::optional<pid_t> WorkerTable::pid(int worker) const {
  if (Index(worker) >= processes_.size() || processes_.pid(Index(worker)) <= 0) return std::nullopt;
  return processes_.pid(Index(worker));
}

void WorkerTable::BeginRound(int rank_first) {
  rank_first_ = rank_first;
  log_mux_.SetPromptRank(config_.worker_stdin >= 0 ? config_.options.worker_stdin.rank : -1);
}

void WorkerTable::Vacate(int worker) {
  if (count() <= worker) workers_.resize(Index(worker) + 1);
  held_.erase(worker);
  processes_.Vacate(Index(worker));
  progress_.Close(worker);
  (*this)[worker] = {};
}

void WorkerTable::Carry(int worker) {
  Worker& old = (*this)[worker];
  old = {.error_file = std::move(old.error_file),
         .started_on_wall = old.started_on_wall,
         .flight = std::move(old.flight),
         .can_be_kept = true,
         .hears_notices = old.hears_notices,
         .notice_saved = old.notice_saved,
         .notice_signaled = old.notice_signaled,
         .carried = true,
         .asked_by = {}};
}

void WorkerTable::Adopt(int worker, Spawned spawned) {
  processes_.Adopt(Index(worker), std::move(spawned));
  Watch(worker);
}

void WorkerTable::Replace(int local_rank, int spare) {
  held_.erase(local_rank);
  Unwatch(spare);
  processes_.Swap(Index(local_rank), Index(spare));
  std::swap((*this)[local_rank], (*this)[spare]);
  progress_.Swap(local_rank, spare);
  log_mux_.Swap(local_rank, spare);
  Vacate(spare);
  Watch(local_rank);
}

void WorkerTable::Watch(int worker) {
  for (const LogMux::Pipe& pipe : log_mux_.OpenPipes(worker)) {
    if (!poller_.Add(pipe.fd, {SourceOf(pipe.stream), worker}))
      EndUnwatched(worker, ErrnoText(errno));
  }
  const int progress = progress_.fd(worker);
  if (progress >= 0 && !poller_.Add(progress, {Source::kWorkerProgress, worker}))
    ReportMissingProgress(ErrnoText(errno));
  // SIGCHLD reports the end if the pidfd cannot be watched.
  if (IsLive(worker) && !ends_.Add(pidfd(worker), {Source::kWorkerEnd, worker}))
    held_.insert(worker);
}

void WorkerTable::Unwatch(int worker) {
  for (const LogMux::Pipe& pipe : log_mux_.OpenPipes(worker)) poller_.Remove(pipe.fd);
  poller_.Remove(progress_.fd(worker));
  ends_.Remove(pidfd(worker));
  held_.erase(worker);
}

// Its output could not be read, and it would block once its pipe is full.
void WorkerTable::EndUnwatched(int worker, const std::string& why) {
  Print(absl::StrCat(NameOf(worker), " is killed because its output cannot be watched: ", why));
  SignalGroup(worker, SIGKILL);
}

bool WorkerTable::Reap(int worker, bool spares_group) {
  if (processes_.ReapIfEnded(Index(worker), spares_group)) {
    held_.erase(worker);
    return true;
  }
  // Its pidfd stays readable and would make the loop spin until the debugger ends.
  if (IsLive(worker) && held_.insert(worker).second) ends_.Remove(pidfd(worker));
  return false;
}

void WorkerTable::Print(const std::string& sentence) {
  console_.WriteLine(OutputStream::kErr, absl::StrCat("ddprun: ", sentence));
}

void WorkerTable::ReportMissingProgress(const std::string& why) {
  Print(absl::StrCat("cannot receive the workers' progress: ", why));
}

void WorkerTable::ReportStuck(pid_t pid, std::chrono::seconds after_kill) {
  const std::string text = ToText(LookAtStuckProcess(pid), after_kill);
  for (const absl::string_view line : absl::StrSplit(absl::StrCat("ddprun: ", text), '\n'))
    console_.WriteLine(OutputStream::kErr, std::string(line));
}

}  // namespace ddprun
