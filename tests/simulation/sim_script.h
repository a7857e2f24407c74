// SPDX-License-Identifier: Apache-2.0
// What a worker asks of the store: it says who it is, meets the others at a barrier, and then
// writes, counts, reads what the others write, and passes things on through a queue.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/values/store_types.h"
#include "tests/simulation/sim_random.h"
#include "tests/simulation/store_invariants.h"

namespace ddprun {

class SimScript {
 public:
  SimScript(RoundId round, int rank, int world_size, SimRandom random)
      : round_(round), rank_(rank), world_size_(world_size), random_(random) {
    constexpr std::uint64_t kTurns[] = {1, 3, 12};
    turns_ = kTurns[random_.Below(std::size(kTurns))];
    constexpr int kPausesMs[] = {1, 100, 400, 2000};
    pause_max_ = std::chrono::milliseconds(kPausesMs[random_.Below(std::size(kPausesMs))]);
  }

  // Given the last answer, if there was a question. Nothing: it has asked all.
  std::optional<StoreOp> Next(const StoreResult* last) {
    switch (step_++) {
      case 0:
        return Set(Own(), ++number_);
      case 1:
        return Add("barrier");
      case 2:
        if (last->number == world_size_) return Set("go", 1);
        ++step_;
        [[fallthrough]];
      case 3:
        return Get("go");
      default:
        return Turn();
    }
  }
  // The barrier is behind it.
  bool has_met() const { return step_ >= 4; }
  // Until its next question.
  Duration Pause() { return random_.Between(Duration(1), pause_max_); }

 private:
  // Either it does some of everything, or it looks again and again at one key, which its node may
  // then answer from what it keeps.
  std::optional<StoreOp> Turn() {
    if (turns_ == 0) return std::nullopt;
    if (turn_step_ == 0) {
      peer_ = random_.Below(static_cast<std::uint64_t>(world_size_));
      watches_ = random_.Chance(0.4);
    }
    const int turn_step = turn_step_++;
    if (watches_ ? turn_step == kLooks : turn_step == 5) {
      turn_step_ = 0;
      --turns_;
    }
    if (watches_) return Get(absl::StrCat("r", peer_));
    switch (turn_step) {
      case 1:
        return Add("count");
      case 2:
        return Set(Own(), ++number_);
      case 3:
        return Queue(StoreVerb::kQueuePush);
      case 4:
        return Queue(StoreVerb::kQueuePop);
      default:
        return Get(absl::StrCat("r", peer_));
    }
  }
  std::string Own() const { return absl::StrCat("r", rank_); }
  StoreOp Op(StoreVerb verb, std::string key) const {
    StoreOp op;
    op.verb = verb;
    op.round = round_;
    op.keys.push_back(std::move(key));
    return op;
  }
  StoreOp Set(const std::string& key, std::int64_t number) const {
    StoreOp op = Op(StoreVerb::kSet, key);
    op.values.push_back(StoreInvariants::Value(round_, key, number));
    return op;
  }
  StoreOp Get(const std::string& key) const {
    StoreOp op = Op(StoreVerb::kGet, key);
    op.timeout = std::chrono::seconds(60);
    return op;
  }
  StoreOp Add(const std::string& key) const {
    StoreOp op = Op(StoreVerb::kAdd, key);
    op.number = 1;
    return op;
  }
  StoreOp Queue(StoreVerb verb) {
    StoreOp op = Op(verb, "queue");
    if (verb == StoreVerb::kQueuePush)
      op.values.push_back(StoreInvariants::Value(round_, Own(), ++pushed_));
    return op;
  }

  static constexpr int kLooks = 8;

  RoundId round_;
  int rank_;
  int world_size_;
  SimRandom random_;
  std::uint64_t turns_ = 0;
  Duration pause_max_{0};
  bool watches_ = false;
  int step_ = 0;
  int turn_step_ = 0;
  std::uint64_t peer_ = 0;
  std::int64_t number_ = 0;
  std::int64_t pushed_ = 0;
};

}  // namespace ddprun
