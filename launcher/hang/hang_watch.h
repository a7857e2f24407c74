// SPDX-License-Identifier: Apache-2.0
// Which of a node's workers live and do not go on: what they say of their progress, whether they
// write anything, and for how long they have done neither. Pure: no I/O, no clock.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "launcher/options/options_hangs.h"
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

  // To be called when NextLook() is over, and as often as one likes before. A watch that finds
  // itself late was stopped, with the machine and its workers: that time counts against none of
  // them. Absent: all go on, or it was told of before. Of several that hang the one that the others
  // wait for.
  std::optional<HungWorker> Look(TimePoint now);
  std::optional<TimePoint> NextLook() const { return next_look_; }

  // The same of workers that have told of no progress for that long, which is not enough for
  // Look(), since another node's worker was found to hang.
  std::optional<HungWorker> FindSilent(std::chrono::milliseconds at_least, TimePoint now) const;

  // Where the round's workers wait for each other, by their ranks. One that lives and has not told
  // is there too. Empty: no worker waits.
  std::vector<RanksInPlace> Places(int rank_first) const;

  // Nothing has become of it since.
  bool StillHangs(const HungWorker& found) const;

  // Of all of the round's workers together; absent: none has told of any.
  std::optional<Progress> Summarize() const;

 private:
  struct Worker {
    bool lives = true;
    bool told = false;
    std::optional<HangKind> reported;
    TimePoint progress_at{};  // or of the start
    TimePoint output_at{};
    Progress progress;
    std::optional<CollectivePlace> place;  // since then
  };
  using Limit = std::chrono::milliseconds;

  bool IsWatched() const;
  void Schedule(TimePoint now);
  Limit Shortest() const;
  static TimePoint Since(const Worker& worker, HangKind kind);
  std::optional<HangKind> WhyHung(const Worker& worker, TimePoint now) const;
  HungWorker Describe(int local_rank, HangKind kind, TimePoint now) const;
  std::optional<int> FurthestBehind(const std::vector<int>& local_ranks) const;

  const HangOptions options_;
  std::vector<Worker> workers_;  // by local rank; empty: there is no round
  std::optional<TimePoint> next_look_;
};

}  // namespace ddprun
