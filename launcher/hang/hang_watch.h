// SPDX-License-Identifier: Apache-2.0
// Finds workers of a node that are alive and make no progress: from their progress reports, their
// output, and the time without either. Pure: no I/O, no clock.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "launcher/options/options.h"
#include "proto/progress_message.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

struct HungWorker {
  int local_rank = 0;
  TimePoint since{};
  Hang hang;
};

class HangWatch {
 public:
  explicit HangWatch(HangOptions options) : options_(options) {}

  // A round begins with so many workers, which all live.
  void Start(int workers, TimePoint now);
  // The round is over or being stopped.
  void End();

  void OnProgress(int local_rank, const ProgressMessage& message, TimePoint now);
  void OnOutput(int local_rank, TimePoint now);
  void OnExit(int local_rank);

  // To be called at NextLook() at the latest. If the call comes late, the machine was suspended;
  // that time is not counted. Returns a hung worker that was not returned before; of several, the
  // one that the others wait for.
  std::optional<HungWorker> Look(TimePoint now);
  std::optional<TimePoint> NextLook() const { return next_look_; }

  // A worker without progress for `at_least`, which is less than Look() requires: for use when a
  // worker of another node was found to hang.
  std::optional<HungWorker> FindSilent(std::chrono::milliseconds at_least, TimePoint now) const;

  // Where the round's workers wait for each other, by rank, with the live workers that have
  // reported nothing. Empty: no worker waits.
  std::vector<RanksInPlace> Places(int rank_first) const;
  // The same of those that have reported a place, also if none of them waits: workers of another
  // node may wait for them.
  std::vector<RanksInPlace> PlacesBesideOthers(int rank_first) const;

  // Returns the workers that have been at one place for kStillTime, with those that have for half
  // of it, or have ended.
  std::vector<RanksInPlace> StillPlaces(int rank_first, TimePoint now) const;
  // When the next one will have been.
  std::optional<TimePoint> NextStill(TimePoint now) const;
  // Returns the place of one worker; empty: it has reported none.
  std::vector<RanksInPlace> PlaceOf(int local_rank, int rank_first) const;

  // The last that it has reported is that it waits in a collective.
  bool WaitsInCollective(int local_rank) const;

  // The local ranks of the round that have not reported where they are.
  std::vector<int> WithoutPlace() const;
  // Where such a worker is, by its flight recorder: for the places above, and no sign of progress.
  void SetDumped(int local_rank, CollectivePlace place);
  bool HasDumps() const;
  // If the workers neither write nor start anything, returns the one that the others wait for
  // according to their flight dumps; else `found`.
  HungWorker Blame(HungWorker found, TimePoint now) const;

  // It has made no progress since it was found.
  bool StillHangs(const HungWorker& found) const;

  // The progress of all workers of the round together, a slow one by its local rank; absent: none
  // has reported any.
  std::optional<Progress> Summarize() const;
  // Each of them, by local rank, without its memory; none where Summarize() has nothing.
  std::vector<RankReport> Ranks() const;

 private:
  enum class Reporting {
    kNothing,
    kProgress,
    kPaused,  // it has announced that silence is no hang
  };
  struct Worker {
    bool lives = true;
    Reporting progress_reports = Reporting::kNothing;
    std::optional<HangKind> reported;
    TimePoint progress_at{};  // or of the start
    TimePoint output_at{};
    Progress progress;
    std::optional<double> loss;
    std::int64_t gpu_memory = 0;
    std::optional<CollectivePlace> place;  // since then
    std::optional<CollectivePlace> dumped;
    // The last place that was reported, and since when it has been that one.
    std::optional<CollectivePlace> seen;
    TimePoint seen_at{};
  };
  using Limit = std::chrono::milliseconds;

  bool IsWatched() const;
  void Schedule(TimePoint now);
  Limit Shortest() const;
  static const CollectivePlace* PlaceOf(const Worker& worker);
  static bool ReportsProgress(const Worker& worker) {
    return worker.progress_reports == Reporting::kProgress;
  }
  static bool Reports(const Worker& worker) {
    return ReportsProgress(worker) || worker.seen.has_value();
  }
  static const Collective* WaitOf(const Worker& worker);
  static TimePoint ProgressAt(const Worker& worker);
  static TimePoint Since(const Worker& worker, HangKind kind);
  std::optional<HangKind> WhyHung(const Worker& worker, TimePoint now) const;
  HungWorker Describe(int local_rank, HangKind kind, TimePoint now) const;
  std::optional<int> FurthestBehind(const std::vector<int>& local_ranks) const;

  const HangOptions options_;
  std::vector<Worker> workers_;  // by local rank; empty: there is no round
  std::optional<TimePoint> next_look_;
};

}  // namespace ddprun
