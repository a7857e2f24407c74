// SPDX-License-Identifier: Apache-2.0
// Keeps account of the time of a node's ranks (proto/rank_time.h), from the start of their workers
// on: what they report of it, and what only their agent sees, such as the time before their first
// report and between rounds. Whatever is reported, the classes add up to ranks x time, since each
// report only divides the time that has passed since the one before. Pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/progress_message.h"
#include "proto/rank_time.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

class RankLedger {
 public:
  // The round runs: its workers have been started, or were kept over the end of the round before.
  // The time since that end is recovery, unless other rounds were in between.
  void Begin(RoundId round, int workers, TimePoint now);
  void OnProgress(int local_rank, const ProgressMessage& message, TimePoint now);
  // One that succeeded waits for the node's others.
  void OnExit(int local_rank, bool success, TimePoint now);
  // The round has ended: its workers are being stopped, or come into the next one.
  void OnBroken(TimePoint now);
  // No worker is left.
  void End(TimePoint now);

  // The time of all rounds so far. While workers run: what they have reported, and the time since a
  // report that is older than kRankQuietTime. Nothing while no worker has reported anything: what
  // such a program does is not known.
  RankTime Take(TimePoint now);

 private:
  enum class State {
    kStarting,   // has reported no step, or one that was reported in an earlier round; nor, where
                 // it reports no progress, a collective
    kRunning,    // is beyond it
    kSucceeded,  // has ended
    kBroken,     // is being stopped, has failed
  };
  struct Rank {
    State state = State::kStarting;
    bool reports = false;            // in this round
    std::optional<RankTime> told;    // its own account, as it has told it last
    std::optional<TimeClass> doing;  // since then
    bool waits = false;              // in a collective, by its last place
    TimePoint heard{};               // or begun
    TimePoint settled{};             // its time is accounted for up to here
  };

  TimeClass ClassOf(const Rank& rank) const;
  void TakePlace(Rank& rank, const ProgressMessage& message, TimePoint now);
  void Settle(Rank& rank, const RankTime& shares, TimePoint now);
  void SettleAll(TimePoint now);
  Rank* Find(int local_rank);

  RankTime total_;
  std::vector<Rank> ranks_;  // of the round that runs; empty: none
  RoundId round_ = kNoRound;
  std::optional<TimePoint> ended_;  // that round, if none runs
  bool known_ = false;              // a worker has reported progress or a place
  bool again_ = false;              // a round was before
  std::int64_t step_ = -1;          // the furthest reported
  std::int64_t redo_ = -1;          // up to here steps are made again
};

}  // namespace ddprun
