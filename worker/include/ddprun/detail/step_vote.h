// SPDX-License-Identifier: Apache-2.0
// Lets all ranks agree on requests of any rank (save, stop) while steps run. A few numbers are
// all-reduced beside the gradients, and no rank waits for them. All ranks must call it in the same
// order among their collectives.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

#include "ddprun/world.h"

namespace ddprun {

// An exchange of a few numbers: the greatest of all ranks.
class Ballot {
 public:
  using Numbers = std::array<int, 3>;

  virtual ~Ballot() = default;
  // Begins one. The one before has been read.
  virtual void Cast(const Numbers& own) = 0;
  // Waits until it is done. Throws c10::Error if another rank has ended.
  virtual Numbers Read() = 0;
};

class StepVote {
 public:
  struct Wishes {
    bool save = false;
    int notice = 0;  // number of a notice to save for; with one, `save` is not told
    int stop = 0;    // number of a signal; the greatest counts
  };

  // A vote is cast at most so often and in every so many steps at least: one in each of many short
  // steps costs them a tenth. On a GPU, whose queue is ahead of what can be read, it is read when
  // the device must have come so far; on a CPU one step later, or within its own step if steps are
  // so long that each has one.
  static constexpr std::chrono::milliseconds kInterval{100};
  static constexpr std::int64_t kIntervalSteps = 16;
  static constexpr std::int64_t kReadAfterSteps = 8;

  explicit StepVote(World& world);
  // Null: a rank alone. `queued`: as on a GPU.
  StepVote(std::unique_ptr<Ballot> ballot, bool queued)
      : ballot_(std::move(ballot)), queued_(queued) {}

  using Time = std::chrono::steady_clock::time_point;

  // At the beginning of a step. What is wished for is kept until a ballot has it.
  void Begin(const Wishes& own, Time now = std::chrono::steady_clock::now());
  // At its end: the same on all ranks; nothing if no ballot was read. Throws c10::Error if another
  // rank has ended.
  Wishes End();

 private:
  Ballot::Numbers Cast(Time now);
  // So many steps after that of its cast a ballot is read.
  std::int64_t ReadAfter() const;
  void SetInterval(std::chrono::microseconds step);

  const std::unique_ptr<Ballot> ballot_;
  const bool queued_;
  Wishes wishes_;
  std::int64_t step_ = 0;
  std::int64_t cast_at_ = -1;  // the step; -1: none is on its way
  std::int64_t next_ = 0;      // the step that casts the next one
  std::int64_t interval_ = 1;  // in steps
  // The latest cast, from which this rank's time of a step is measured.
  std::int64_t timed_step_ = 0;
  Time timed_{};
};

}  // namespace ddprun
