// SPDX-License-Identifier: Apache-2.0
// Workers that live on when a round breaks, and those that are parked for the next one.
#include <fcntl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/placement/worker_environ.h"
#include "launcher/processes/workers.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {

// ---- What workers report

std::optional<ProgressMessage> Workers::ReadProgress(int worker, TimePoint now,
                                                     std::vector<Event>& events) {
  std::optional<ProgressMessage> message = progress_.Read(worker);
  if (!message.has_value()) return std::nullopt;
  if (message->can_be_kept.has_value()) {
    Of(worker).can_be_kept = *message->can_be_kept;
    if (IsParked(worker)) parked_failures_ = 0;
  }
  if (IsParked(worker)) return std::nullopt;
  if (message->left_round == ToNumber(start_.round)) OnLeft(worker, *message, now, events);
  if (!round_live_ || Of(worker).left) return std::nullopt;
  return message;
}

void Workers::OnLeft(int local_rank, const ProgressMessage& message, TimePoint now,
                     std::vector<Event>& events) {
  Worker& worker = Of(local_rank);
  if (!round_live_ || worker.left || !processes_.IsLive(static_cast<std::size_t>(local_rank)))
    return;
  worker.left = true;
  if (!worker.stopped && !worker.was_failing) {
    WorkerLeft left;
    left.local_rank = local_rank;
    left.pid = processes_.pid(static_cast<std::size_t>(local_rank));
    left.age = AgeAt(now);
    left.error = message.error.value_or("");
    left.last_lines = log_mux_.LastLinesOf(local_rank);
    // Behind the ends of others that are being looked into.
    evidence_.Add(std::move(left));
    evidence_.Release(now, events);
  }
  FinishIfAllGone(now, events);
}

// ---- The next round

// What a new worker would find in its environment, but for what is the process' own.
void Workers::TellRound(int local_rank) {
  RoundBegins begins{.round = ToNumber(start_.round),
                     .variables = ToEnviron(EnvironmentOf(local_rank))};
  for (const std::string& variable : network_)
    begins.variables.emplace_back(absl::StrSplit(variable, absl::MaxSplits('=', 1)));
  if (progress_.Send(local_rank, begins)) return;
  console_.WriteLine(OutputStream::kErr,
                     absl::StrCat("ddprun: rank ", start_.rank_first + local_rank,
                                  " is killed because it does not read its socket of rounds"));
  processes_.SignalGroup(static_cast<std::size_t>(local_rank), SIGKILL);
}

std::vector<bool> Workers::KeptFlags() const {
  std::vector<bool> kept(workers_.size());
  for (int i = 0; i < count(); ++i) {
    kept[static_cast<std::size_t>(i)] =
        processes_.IsLive(static_cast<std::size_t>(i)) && (IsParked(i) || Of(i).left);
  }
  return kept;
}

bool Workers::AnyKept() const {
  for (const bool kept : KeptFlags()) {
    if (kept) return true;
  }
  return false;
}

// ---- Parked workers

std::optional<int> Workers::ReadySpare() const {
  for (int i = size(); i < count(); ++i) {
    if (Of(i).can_be_kept && processes_.IsLive(static_cast<std::size_t>(i))) return i;
  }
  return std::nullopt;
}

void Workers::TakeSpare(int local_rank, int spare) {
  Unwatch(spare);
  processes_.Swap(static_cast<std::size_t>(local_rank), static_cast<std::size_t>(spare));
  std::swap(Of(local_rank), Of(spare));
  progress_.Swap(local_rank, spare);
  log_mux_.Swap(local_rank, spare);
  processes_.Vacate(static_cast<std::size_t>(spare));
  progress_.Close(spare);
  Of(spare) = {};
  Watch(local_rank);
}

// Once the workers of a round have said that they can be kept, since another program would begin
// as a world of its own.
void Workers::ParkWorkers() {
  const int spares = config_.options.restarts.spares;
  if (spares == 0 || !round_live_ || end_all_ || IsStarting() || parking_.has_value()) return;
  if (parked_failures_ >= kParkedFailuresMax) return;
  for (int i = 0; i < size(); ++i) {
    if (!IsRunning(i) || !Of(i).can_be_kept || Of(i).stopped) return;
  }
  for (int i = size(); i < size() + spares; ++i) {
    if (i < count() && processes_.IsLive(static_cast<std::size_t>(i))) continue;
    if (count() <= i) workers_.resize(static_cast<std::size_t>(i) + 1);
    processes_.Vacate(static_cast<std::size_t>(i));
    Of(i) = {};
    const std::string name = absl::StrCat("spare_", ++parked_);
    absl::Status status = progress_.Open(config_.temp_dir, name, i);
    if (status.ok()) status = log_mux_.StartParked(i, "[spare] ", parking_ends_);
    if (!status.ok()) {
      parked_failures_ = kParkedFailuresMax;
      console_.WriteLine(OutputStream::kErr,
                         absl::StrCat("ddprun: no spare worker is started: ", status.message()));
      return;
    }
    Of(i).error_file = absl::StrCat(config_.temp_dir, "/error_", name, ".json");
    WorkerEnv env = EnvironmentOf(0);
    env.error_file = Of(i).error_file;
    env.notify_socket = progress_.path(i);
    Place place;
    place.threads = config_.places.front().threads;
    Of(i).started_on_wall = std::chrono::system_clock::now();
    parking_cgroup_ =
        OwnedFd(cgroup_.empty() ? -1 : open(cgroup_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::vector<SpawnRequest> requests;
    requests.push_back(RequestFor(place, ParkedEnviron(OwnEnviron(), env, place), 0, parking_ends_,
                                  parking_cgroup_.get()));
    parking_ = i;
    parker_.Begin(std::move(requests), processes_.file_limit());
    return;
  }
}

void Workers::TakeParked(TimePoint now, std::vector<Event>& events) {
  if (!parking_.has_value()) return;
  auto spawned = parker_.Take();
  if (!spawned.has_value()) return;
  const int worker = *std::exchange(parking_, std::nullopt);
  processes_.Adopt(static_cast<std::size_t>(worker), std::move(spawned->front()));
  parking_ends_ = {};
  parking_cgroup_.Reset();
  Watch(worker);
  if (!processes_.IsLive(static_cast<std::size_t>(worker))) EndParked(worker);
  if (end_all_) processes_.SignalGroup(static_cast<std::size_t>(worker), SIGKILL);
  FinishIfAllGone(now, events);
}

}  // namespace ddprun
