// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/rank_ledger.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/base/limits.h"

namespace ddprun {
namespace {

RankTime::Time Between(TimePoint from, TimePoint to) {
  return std::max(RankTime::Time{0}, std::chrono::duration_cast<RankTime::Time>(to - from));
}

// What `later` has more; all of it if the worker counts from 0 again.
RankTime Added(const std::optional<RankTime>& earlier, const RankTime& later) {
  if (!earlier) return later;
  RankTime added;
  for (std::size_t i = 0; i < kTimeClasses; ++i) {
    added.times[i] = later.times[i] - earlier->times[i];
    if (added.times[i].count() < 0) return later;
  }
  return added;
}

}  // namespace

void RankLedger::Begin(RoundId round, int workers, TimePoint now) {
  OnBroken(now);
  if (ended_ && ToNumber(round) == ToNumber(round_) + 1) {
    total_[TimeClass::kRecovery] += workers * Between(*ended_, now);
  }
  ended_.reset();
  round_ = round;
  Rank fresh;
  fresh.heard = fresh.settled = now;
  ranks_.assign(static_cast<std::size_t>(workers), fresh);
}

void RankLedger::OnProgress(int local_rank, const ProgressMessage& message, TimePoint now) {
  Rank* const rank = Find(local_rank);
  if (rank == nullptr || OnlyHears(message)) return;
  known_ = true;
  if (!message.goes_on) return TakePlace(*rank, message, now);
  RankTime shares;
  if (message.times) shares = Added(rank->told, *message.times);
  if (rank->state == State::kStarting && again_) shares = {};
  Settle(*rank, shares, now);
  if (message.times) rank->told = message.times;
  if (message.doing) rank->doing = message.doing;
  rank->reports = true;
  rank->waits = message.place && message.place->waits;
  rank->heard = now;
  if (!message.step) return;
  step_ = std::max(step_, *message.step);
  if (rank->state == State::kStarting && *message.step > redo_) rank->state = State::kRunning;
}

// A place is reported when it has been the same for a moment.
void RankLedger::TakePlace(Rank& rank, const ProgressMessage& message, TimePoint now) {
  if (rank.doing) return;  // its own account says more
  Settle(rank, {}, now);
  rank.waits = message.place && message.place->waits;
  const auto is_begun = [](const Collective& done) { return done.number > 0; };
  const bool begun = rank.waits || message.moves_on ||
                     (message.place && std::any_of(message.place->last.begin(),
                                                   message.place->last.end(), is_begun));
  if (rank.state == State::kStarting && !rank.reports && begun) rank.state = State::kRunning;
}

void RankLedger::OnExit(int local_rank, bool success, TimePoint now) {
  Rank* const rank = Find(local_rank);
  if (rank == nullptr) return;
  Settle(*rank, {}, now);
  if (rank->state != State::kBroken) rank->state = success ? State::kSucceeded : State::kBroken;
}

void RankLedger::OnBroken(TimePoint now) {
  SettleAll(now);
  for (Rank& rank : ranks_) rank.state = State::kBroken;
  again_ = again_ || !ranks_.empty();
  redo_ = step_;
}

void RankLedger::End(TimePoint now) {
  if (ranks_.empty()) return;
  OnBroken(now);
  ranks_.clear();
  ended_ = now;
}

RankTime RankLedger::Take(TimePoint now) {
  for (Rank& rank : ranks_) {
    if (rank.told && now - rank.heard < kRankQuietTime) continue;
    Settle(rank, {}, now);
  }
  return known_ ? total_ : RankTime{};
}

// Classifies the time since the last report of the rank.
TimeClass RankLedger::ClassOf(const Rank& rank) const {
  switch (rank.state) {
    case State::kStarting:
      return again_ ? TimeClass::kRecovery : rank.doing.value_or(TimeClass::kStart);
    case State::kRunning:
      return rank.doing.value_or(rank.waits ? TimeClass::kWaiting : TimeClass::kTraining);
    case State::kSucceeded:
      return TimeClass::kWaiting;
    case State::kBroken:
      return TimeClass::kRecovery;
  }
  return TimeClass::kTraining;
}

void RankLedger::Settle(Rank& rank, const RankTime& shares, TimePoint now) {
  const RankTime::Time time = Between(rank.settled, now);
  rank.settled += time;
  const bool counts = rank.state == State::kStarting || rank.state == State::kRunning;
  total_ += Divide(time, counts ? shares : RankTime{}, ClassOf(rank));
}

void RankLedger::SettleAll(TimePoint now) {
  for (Rank& rank : ranks_) Settle(rank, {}, now);
}

RankLedger::Rank* RankLedger::Find(int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  return index < ranks_.size() ? &ranks_[index] : nullptr;
}

}  // namespace ddprun
