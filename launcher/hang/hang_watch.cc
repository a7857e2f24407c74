// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/hang_watch.h"

#include <algorithm>
#include <utility>

#include "launcher/base/limits.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/observe/run_status.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/first_cause.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookIntervalMin{20};
// Looks until a hang is found: it is named with at most a tenth of its limit too much.
constexpr int kLooksPerLimit = 10;

bool IsOver(milliseconds limit, TimePoint since, TimePoint now) {
  return limit.count() > 0 && now - since >= limit;
}

}  // namespace

void HangWatch::Start(int workers, TimePoint now) {
  Worker fresh;
  fresh.progress_at = fresh.output_at = now;
  workers_.assign(static_cast<std::size_t>(workers), fresh);
  next_look_.reset();
  Schedule(now);
}

void HangWatch::End() {
  workers_.clear();
  next_look_.reset();
}

void HangWatch::OnProgress(int local_rank, const ProgressMessage& message, TimePoint now) {
  if (static_cast<std::size_t>(local_rank) >= workers_.size()) return;
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  const bool says_place = message.place.has_value() || message.moves_on;
  if (says_place || (message.goes_on && !message.pauses)) worker.place = message.place;
  if (says_place && message.place != worker.seen) {
    worker.seen = message.place;
    worker.seen_at = now;
    if (!ReportsProgress(worker)) worker.reported.reset();
    if (!next_look_.has_value()) Schedule(now);
  }
  if (!message.goes_on) return;
  worker.progress_reports = message.pauses ? Reporting::kPaused : Reporting::kProgress;
  if (message.pauses && !says_place) {
    // Whatever it was in before, it has come out of.
    if (worker.place) worker.place->waits.reset();
    if (worker.seen) worker.seen->waits.reset();
  }
  worker.reported.reset();
  worker.progress_at = now;
  Progress& progress = worker.progress;
  if (message.step) progress.step = *message.step;
  if (message.epoch) progress.epoch = *message.epoch;
  if (message.rate) progress.rate = *message.rate;
  if (message.unit) progress.rate_unit = *message.unit;
  if (message.section) progress.section = *message.section;
  if (message.loss) worker.loss = message.loss;
  if (message.accuracy) progress.accuracy = message.accuracy;
  if (message.gpu_memory) worker.gpu_memory = *message.gpu_memory;
  if (message.slow) {
    progress.slow_rank = *message.slow > 0 ? local_rank : -1;
    progress.slowness = *message.slow;
  }
  if (message.damaged) {
    progress.damages = *message.damaged;
    progress.damaged_rank = *message.damaged > 0 ? local_rank : -1;
  }
  if (!next_look_.has_value()) Schedule(now);
}

void HangWatch::OnOutput(int local_rank, TimePoint now) {
  if (static_cast<std::size_t>(local_rank) >= workers_.size()) return;
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  worker.output_at = now;
  if (worker.reported == HangKind::kNoOutput) worker.reported.reset();
}

void HangWatch::OnExit(int local_rank) {
  if (static_cast<std::size_t>(local_rank) >= workers_.size()) return;
  workers_[static_cast<std::size_t>(local_rank)].lives = false;
}

std::optional<HungWorker> HangWatch::Look(TimePoint now) {
  if (!next_look_.has_value()) return std::nullopt;
  if (now - *next_look_ > kHangLateMax) {
    const Duration lost = now - *next_look_;
    for (Worker& worker : workers_) {
      worker.progress_at = std::min(now, worker.progress_at + lost);
      worker.output_at = std::min(now, worker.output_at + lost);
      worker.seen_at = std::min(now, worker.seen_at + lost);
    }
  }
  if (now >= *next_look_) Schedule(now);
  std::optional<HungWorker> found;
  std::vector<bool> known;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    known.push_back(worker.reported.has_value());
    const std::optional<HangKind> kind = WhyHung(worker, now);
    if (!kind.has_value()) continue;
    if (!worker.reported.has_value() && !found.has_value()) {
      found = Describe(static_cast<int>(i), *kind, now);
    }
    worker.reported = kind;
  }
  if (!found.has_value() || found->hang.kind != HangKind::kNoProgress) return found;
  // One that hangs a little shorter may be the one that the others wait for.
  if (auto behind = FindSilent(options_.hang_timeout / 2, now)) found = std::move(behind);
  const auto blamed = static_cast<std::size_t>(found->local_rank);
  workers_[blamed].reported = HangKind::kNoProgress;
  // It was named when the first of those that wait for it had waited for long enough.
  if (known[blamed]) return std::nullopt;
  return found;
}

std::optional<HungWorker> HangWatch::FindSilent(milliseconds at_least, TimePoint now) const {
  std::vector<int> silent;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (worker.lives && Reports(worker) && now - ProgressAt(worker) >= at_least) {
      silent.push_back(static_cast<int>(i));
    }
  }
  // One that has announced its silence is to blame only if it is behind all others.
  std::stable_partition(silent.begin(), silent.end(), [this](int local_rank) {
    return workers_[static_cast<std::size_t>(local_rank)].progress_reports != Reporting::kPaused;
  });
  const std::optional<int> behind = FurthestBehind(silent);
  if (!behind.has_value()) return std::nullopt;
  HungWorker found = Describe(*behind, HangKind::kNoProgress, now);
  for (const int local_rank : silent) {
    if (local_rank == *behind) continue;
    const std::int64_t step = workers_[static_cast<std::size_t>(local_rank)].progress.step;
    found.hang.others_step = std::max(found.hang.others_step, step);
  }
  return found;
}

std::vector<RanksInPlace> HangWatch::Places(int rank_first) const {
  const bool any = std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
    return PlaceOf(worker) != nullptr && PlaceOf(worker)->waits.has_value();
  });
  std::vector<RanksInPlace> places;
  for (std::size_t i = 0; any && i < workers_.size(); ++i) {
    const CollectivePlace* place = PlaceOf(workers_[i]);
    if (place == nullptr && !workers_[i].lives) continue;
    AddPlace(rank_first + static_cast<int>(i), place != nullptr ? *place : CollectivePlace{},
             places);
  }
  return places;
}

std::vector<RanksInPlace> HangWatch::PlacesBesideOthers(int rank_first) const {
  std::vector<RanksInPlace> places;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const CollectivePlace* place = PlaceOf(workers_[i]);
    if (place != nullptr) AddPlace(rank_first + static_cast<int>(i), *place, places);
  }
  return places;
}

std::vector<RanksInPlace> HangWatch::StillPlaces(int rank_first, TimePoint now) const {
  const auto is_still = [now](const Worker& worker, Duration time) {
    return worker.lives && worker.place && now - worker.seen_at >= time;
  };
  const bool any = std::any_of(workers_.begin(), workers_.end(),
                               [&](const Worker& worker) { return is_still(worker, kStillTime); });
  std::vector<RanksInPlace> places;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (!worker.place) continue;
    // One that has stopped a little later may be the one that the others wait for.
    if (worker.lives && !(any && is_still(worker, kStillTime / 2))) continue;
    AddPlace(rank_first + static_cast<int>(i), *worker.place, places);
  }
  return places;
}

std::optional<TimePoint> HangWatch::NextStill(TimePoint now) const {
  std::optional<TimePoint> next;
  for (const Worker& worker : workers_) {
    if (worker.lives && worker.place && now - worker.seen_at < kStillTime)
      next = Earliest({next, worker.seen_at + kStillTime});
  }
  return next;
}

std::vector<RanksInPlace> HangWatch::PlaceOf(int local_rank, int rank_first) const {
  std::vector<RanksInPlace> places;
  if (static_cast<std::size_t>(local_rank) >= workers_.size()) return places;
  const CollectivePlace* place = PlaceOf(workers_[static_cast<std::size_t>(local_rank)]);
  if (place != nullptr) AddPlace(rank_first + local_rank, *place, places);
  return places;
}

std::vector<int> HangWatch::WithoutPlace() const {
  std::vector<int> local_ranks;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].place.has_value()) local_ranks.push_back(static_cast<int>(i));
  }
  return local_ranks;
}

void HangWatch::SetDumped(int local_rank, CollectivePlace place) {
  if (static_cast<std::size_t>(local_rank) >= workers_.size()) return;
  workers_[static_cast<std::size_t>(local_rank)].dumped = std::move(place);
}

bool HangWatch::HasDumps() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.dumped.has_value(); });
}

HungWorker HangWatch::Blame(HungWorker found, TimePoint now) const {
  if (found.hang.kind == HangKind::kNoProgress) return found;
  const Duration at_least = (now - found.since) / 2;
  int blamed = found.local_rank;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    const CollectivePlace* before = PlaceOf(workers_[static_cast<std::size_t>(blamed)]);
    if (!worker.lives || now - Since(worker, found.hang.kind) < at_least) continue;
    if (before == nullptr || PlaceOf(worker) == nullptr) continue;
    if (IsBehind(*PlaceOf(worker), *before)) blamed = static_cast<int>(i);
  }
  return blamed == found.local_rank ? std::move(found) : Describe(blamed, found.hang.kind, now);
}

bool HangWatch::WaitsInCollective(int local_rank) const {
  if (static_cast<std::size_t>(local_rank) >= workers_.size()) return false;
  const std::optional<CollectivePlace>& place =
      workers_[static_cast<std::size_t>(local_rank)].place;
  return place.has_value() && place->waits.has_value();
}

bool HangWatch::StillHangs(const HungWorker& found) const {
  if (static_cast<std::size_t>(found.local_rank) >= workers_.size()) return false;
  const Worker& worker = workers_[static_cast<std::size_t>(found.local_rank)];
  return worker.lives && Since(worker, found.hang.kind) <= found.since;
}

std::optional<Progress> HangWatch::Summarize() const {
  std::vector<const Progress*> all;
  for (const Worker& worker : workers_) {
    if (worker.progress_reports != Reporting::kNothing) all.push_back(&worker.progress);
  }
  if (all.empty()) return std::nullopt;
  return ddprun::Summarize(all);
}

std::vector<RankReport> HangWatch::Ranks() const {
  std::vector<RankReport> ranks;
  bool reports = false;
  for (const Worker& worker : workers_) {
    const Progress& progress = worker.progress;
    reports = reports || worker.progress_reports != Reporting::kNothing;
    ranks.push_back({.step = progress.step,
                     .rate = progress.rate,
                     .loss = worker.loss,
                     .section = progress.section,
                     .gpu_memory = worker.gpu_memory,
                     .slowness = progress.slow_rank >= 0 ? progress.slowness : 0,
                     .hung = worker.lives && worker.reported.has_value(),
                     .ended = !worker.lives});
  }
  if (!reports) ranks.clear();
  return ranks;
}

// Without a limit that could be reached there is nothing to check, and no deadline.
bool HangWatch::IsWatched() const {
  if (workers_.empty()) return false;
  if (options_.init_timeout.count() > 0 || options_.heartbeat_timeout.count() > 0) return true;
  return options_.hang_timeout.count() > 0 &&
         std::any_of(workers_.begin(), workers_.end(), Reports);
}

milliseconds HangWatch::Shortest() const {
  milliseconds shortest = kHangTimeoutMax;
  for (const milliseconds limit :
       {options_.hang_timeout, options_.init_timeout, options_.heartbeat_timeout}) {
    if (limit.count() > 0) shortest = std::min(shortest, limit);
  }
  return shortest;
}

void HangWatch::Schedule(TimePoint now) {
  next_look_.reset();
  if (!IsWatched()) return;
  next_look_ = now + std::clamp<milliseconds>(Shortest() / kLooksPerLimit, kLookIntervalMin,
                                              kHangLookInterval);
}

// Null: it is not known.
const CollectivePlace* HangWatch::PlaceOf(const Worker& worker) {
  if (worker.place.has_value()) return &*worker.place;
  return worker.dumped.has_value() ? &*worker.dumped : nullptr;
}

// The collective that it waits in, as far as it has reported one.
const Collective* HangWatch::WaitOf(const Worker& worker) {
  return worker.seen.has_value() && worker.seen->waits.has_value() ? &*worker.seen->waits : nullptr;
}

// For a worker that reports only its place among collectives, another place is progress.
TimePoint HangWatch::ProgressAt(const Worker& worker) {
  if (ReportsProgress(worker) || !worker.seen.has_value()) return worker.progress_at;
  return std::max(worker.progress_at, worker.seen_at);
}

// A worker that reports progress need not write anything.
TimePoint HangWatch::Since(const Worker& worker, HangKind kind) {
  switch (kind) {
    case HangKind::kNoOutput:
      return std::max(worker.output_at, ProgressAt(worker));
    case HangKind::kNoStart:
      return worker.progress_at;
    case HangKind::kNoProgress:
      break;
  }
  return ProgressAt(worker);
}

std::optional<HangKind> HangWatch::WhyHung(const Worker& worker, TimePoint now) const {
  if (!worker.lives) return std::nullopt;
  // One that reports only its place may compute for long, unless it waits for others.
  if ((ReportsProgress(worker) || WaitOf(worker) != nullptr) &&
      IsOver(options_.hang_timeout, ProgressAt(worker), now)) {
    return HangKind::kNoProgress;
  }
  if (worker.progress_reports == Reporting::kNothing &&
      IsOver(options_.init_timeout, worker.progress_at, now)) {
    return HangKind::kNoStart;
  }
  if (IsOver(options_.heartbeat_timeout, Since(worker, HangKind::kNoOutput), now)) {
    return HangKind::kNoOutput;
  }
  return std::nullopt;
}

HungWorker HangWatch::Describe(int local_rank, HangKind kind, TimePoint now) const {
  const Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  HungWorker found;
  found.local_rank = local_rank;
  found.since = Since(worker, kind);
  found.hang.kind = kind;
  found.hang.silent = std::chrono::duration_cast<milliseconds>(now - found.since);
  found.hang.step = worker.progress.step;
  found.hang.section = worker.progress.section;
  if (const Collective* wait = WaitOf(worker); !ReportsProgress(worker) && wait != nullptr)
    found.hang.section = NameOf(*wait);
  return found;
}

std::optional<int> HangWatch::FurthestBehind(const std::vector<int>& local_ranks) const {
  const auto is_behind = [](const Worker& a, const Worker& b) {
    if (IsBehind(a.progress, b.progress)) return true;
    if (IsBehind(b.progress, a.progress)) return false;
    return a.seen && b.seen && IsBehind(*a.seen, *b.seen);
  };
  std::optional<int> behind;
  for (const int local_rank : local_ranks) {
    if (!behind.has_value() || is_behind(workers_[static_cast<std::size_t>(local_rank)],
                                         workers_[static_cast<std::size_t>(*behind)])) {
      behind = local_rank;
    }
  }
  return behind;
}

}  // namespace ddprun
