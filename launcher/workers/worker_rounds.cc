// SPDX-License-Identifier: Apache-2.0
// Workers that live on when a round breaks, those that are parked for the next one, and what
// workers are told in the middle of a round.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/collectives/collective_watch.h"
#include "launcher/placement/cpu_binding.h"
#include "launcher/placement/worker_environ.h"
#include "launcher/processes/process_stat.h"
#include "launcher/workers/workers.h"
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
  if (message->hears_notices) {
    Of(worker).hears_notices = true;
    TellNotice(worker, now);
  }
  if (IsParked(worker) || OnlyHears(*message)) return std::nullopt;
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
    if (places_.on_ended) {
      // A message without a place leaves the one that it has reported before.
      places_.on_ended(local_rank, message.place ? std::optional(message) : std::nullopt, now);
      left.places = places_.now();
    }
    // Behind the ends of others that are being looked into.
    evidence_.Add(std::move(left));
    ReleaseEvidence(now, events);
  }
  FinishIfAllGone(now, events);
}

// ---- Notices of preemption

Workers::Told Workers::SetNotice(const Preemption& preemption, TimePoint now) {
  notice_ = preemption;
  notice_deadline_ = now + preemption.remaining;
  next_handler_look_.reset();
  Told told;
  for (int i = 0; i < count(); ++i) {
    const bool is_told = TellNotice(i, now);
    if (!IsRunning(i)) continue;
    ++told.live;
    told.told += is_told;
  }
  return told;
}

bool Workers::TellNotice(int worker, TimePoint now) {
  if (!NoticeStands(now) || !Of(worker).hears_notices) return false;
  return progress_.Send(
      worker, NoticeMessage{.number = notice_->number,
                            .remaining = std::chrono::duration_cast<std::chrono::milliseconds>(
                                notice_deadline_ - now),
                            .host = notice_->host,
                            .node_rank = notice_->node_rank,
                            .reason = notice_->reason});
}

// A worker without a handler, as one that has just been started, would be killed by the signal. To
// the worker alone, as in Forward().
void Workers::SignalNotice(TimePoint now) {
  const int signal = config_.options.stopping.notices.worker_signal;
  if (signal == 0 || (next_handler_look_.has_value() && now < *next_handler_look_)) return;
  next_handler_look_.reset();
  if (!NoticeStands(now) || !round_live_ || stopping_) return;
  for (int i = 0; i < size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (!IsRunning(i) || Of(i).notice_signaled == notice_->number) continue;
    if (HandlesSignal(processes_.pid(index), signal)) {
      Of(i).notice_signaled = notice_->number;
      processes_.SignalProcess(index, signal);
    } else {
      next_handler_look_ = now + kNoticeHandlerInterval;
    }
  }
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

std::optional<int> Workers::ReadySpare(int local_rank) const {
  const int program = config_.places[static_cast<std::size_t>(local_rank)].program;
  for (int i = size(); i < count(); ++i) {
    const auto stands_for = static_cast<std::size_t>(StandsFor(i));
    if (config_.places[stands_for].program == program && Of(i).can_be_kept &&
        processes_.IsLive(static_cast<std::size_t>(i)))
      return i;
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
  BindSpare(local_rank);
}

// Parked workers are bound to nothing, as it is not known whose place they will take.
void Workers::BindSpare(int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  const CpuBinding binding(config_.places[index].cpus, {});
  if (binding.ApplyTo(processes_.pid(index))) return;
  console_.WriteLine(OutputStream::kErr,
                     absl::StrCat("ddprun: rank ", start_.rank_first + local_rank,
                                  " runs without its --numa-binding: ", ErrnoText(errno)));
}

void Workers::Prepare() {
  prepares_ = true;
  reported_keeping_.reset();  // the service asks again after its connection broke
  parked_failures_ = 0;
}

bool Workers::AllCanBeKept() const {
  for (int i = 0; i < size(); ++i) {
    if (!IsRunning(i) || !Of(i).can_be_kept) return false;
  }
  return true;
}

bool Workers::AllParkedAreReady() const {
  int ready = 0;
  for (int i = size(); i < count(); ++i)
    ready += Of(i).can_be_kept && processes_.IsLive(static_cast<std::size_t>(i));
  return ready >= size();
}

// A round that is being stopped keeps what it last reported.
void Workers::ReportKeeping(std::vector<Event>& events) {
  std::optional<bool> now = reported_keeping_;
  if (prepares_) now = AllParkedAreReady();
  if (round_live_ && !IsStarting() && !end_all_ && !stopping_) now = AllCanBeKept();
  if (!now.has_value() || now == reported_keeping_) return;
  const bool is_news = *now || reported_keeping_.has_value();
  reported_keeping_ = now;
  if (is_news) events.push_back(WorkersCanBeKept{*now});
}

// In a round once its workers have said that they can be kept, since another program would begin
// as a world of its own.
int Workers::ParkedWanted() const {
  if (end_all_ || IsStarting()) return 0;
  const int spares = config_.options.restarts.spares;
  if (prepares_) return size() + spares;
  return round_live_ && !stopping_ && AllCanBeKept() ? spares : 0;
}

void Workers::ParkWorkers() {
  if (parking_.has_value() || parked_failures_ >= kParkedFailuresMax) return;
  const int end = size() + ParkedWanted();
  for (int i = size(); i < end; ++i) {
    if (processes_.IsLive(static_cast<std::size_t>(i))) continue;
    const absl::Status status = Park(i);
    if (status.ok()) return;  // one at a time
    parked_failures_ = kParkedFailuresMax;
    console_.WriteLine(OutputStream::kErr,
                       absl::StrCat("ddprun: no spare worker is started: ", status.message()));
    return;
  }
}

absl::Status Workers::Park(int worker) {
  const auto index = static_cast<std::size_t>(worker);
  if (workers_.size() <= index) workers_.resize(index + 1);
  processes_.Vacate(index);
  Of(worker) = {};
  const std::string name = absl::StrCat("spare_", ++parked_);
  absl::Status status = progress_.Open(config_.temp_dir, name, worker);
  if (status.ok()) status = log_mux_.StartParked(worker, "[spare] ", parking_ends_);
  if (!status.ok()) return status;
  Of(worker).error_file = absl::StrCat(config_.temp_dir, "/error_", name, ".json");
  Of(worker).started_on_wall = std::chrono::system_clock::now();
  const WorkerEnv env = EnvironmentOf(worker);
  // Any CPU: which rank's place it takes is not known, only which program it runs.
  const Place& one = config_.places[static_cast<std::size_t>(StandsFor(worker))];
  Place place;
  place.threads = config_.places.front().threads;
  const bool gpus_are_shared =
      std::all_of(config_.places.begin(), config_.places.end(), [&one](const Place& other) {
        return other.program != one.program || other.visible_devices == one.visible_devices;
      });
  if (gpus_are_shared) place.visible_devices = one.visible_devices;
  parking_cgroup_ = OpenCgroup();
  std::vector<SpawnRequest> requests;
  std::vector<std::string> environment = ParkedEnviron(OwnEnviron(), env, place);
  if (WatchesCollectives() && config_.program_of(StandsFor(worker)).is_python)
    AddCollectiveWatch(CollectiveWatchFolder(), environment);
  requests.push_back(
      RequestFor(worker, place, std::move(environment), parking_ends_, parking_cgroup_.get()));
  parking_ = worker;
  parker_.Begin(std::move(requests), processes_.file_limit());
  return absl::OkStatus();
}

void Workers::TakeParked(TimePoint now, std::vector<Event>& events) {
  if (!parking_.has_value()) return;
  auto spawned = parker_.Take();
  if (!spawned.has_value()) return;
  const int worker = *std::exchange(parking_, std::nullopt);
  processes_.Adopt(static_cast<std::size_t>(worker), std::move(spawned->front()));
  parking_ends_ = {};
  parking_cgroup_.Reset();
  spare_deadline_.reset();
  if (std::exchange(spare_given_up_, false)) Of(worker).signaled = true;
  Watch(worker);
  if (!processes_.IsLive(static_cast<std::size_t>(worker))) EndParked(worker);
  if (end_all_ || Of(worker).signaled)
    processes_.SignalGroup(static_cast<std::size_t>(worker), SIGKILL);
  // One that was killed while it waited for its program must not count as one that is kept.
  ReapWorker(worker, now, events);
  FinishIfAllGone(now, events);
}

// All others of the round have ended. A spare that is just being started is waited for, since only
// its spawner knows it from an orphan; but not for ever: the disk of its program may hang.
bool Workers::WaitsForSpare(TimePoint now) {
  if (!parking_.has_value() || spare_given_up_) return false;
  if (!spare_deadline_.has_value()) spare_deadline_ = now + kSpareStartTimeout;
  if (now < *spare_deadline_) return true;
  console_.WriteLine(
      OutputStream::kErr,
      absl::StrCat("ddprun: a spare worker is given up, because it could not be started within ",
                   kSpareStartTimeout.count(), " s: the disk of ",
                   config_.program_of(StandsFor(*parking_)).path,
                   " does not answer; check that disk"));
  AbandonSpare();
  return false;
}

// It is killed with the orphans; should its spawner still return it, then it is killed as well.
void Workers::AbandonSpare() {
  parker_.Cancel();
  spare_given_up_ = parking_.has_value();
  spare_deadline_.reset();
}

}  // namespace ddprun
