// SPDX-License-Identifier: Apache-2.0
// Finds a rank that is slower than its peers, from the time that each needs for a step without
// waiting for the others. Of each rank its fastest step of the last few counts: what delays a
// single step (a page fault, another process) is in no minimum, what slows the rank down is in all.
// A machine may be a little slower for a second (another guest of its host), so a small difference
// counts if it lasts.
// Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace ddprun {

// In microseconds; 0: the rank has not made so many steps.
struct FastestSteps {
  std::int64_t recent = 0;   // of kSteps, or of more
  std::int64_t lasting = 0;  // of kStepsMax
  bool operator==(const FastestSteps&) const = default;
};

// The last steps of one rank.
class OwnSteps {
 public:
  static constexpr std::size_t kSteps = 14;
  // The recent ones take so long at least, if they are not kStepsMax.
  static constexpr std::chrono::milliseconds kTime{1000};
  // And as many of them are taken as it takes until the rank has waited for a CPU for no more than
  // this share of the time without waiting: other processes may slow each of few steps down. A
  // rank's own threads take some percent from each other, one busy process more than CPUs half.
  static constexpr double kWaitedShare = 0.2;
  static constexpr std::size_t kStepsMax = 128;

  // What one step took without waiting, and how long it waited for a CPU.
  void Add(std::chrono::microseconds own, std::chrono::microseconds waited);
  FastestSteps Fastest() const;

 private:
  struct Step {
    std::chrono::microseconds own;
    std::chrono::microseconds waited;
  };

  std::deque<Step> steps_;  // the latest first
};

struct Straggler {
  int rank = 0;
  double factor = 0;  // its time for a step, in those of its peers
  bool operator==(const Straggler&) const = default;
};

// Each rank passes the same numbers, and comes to the same result.
class StragglerRule {
 public:
  // Between exchanges of the fastest steps. A rank that becomes slow is found at the first exchange
  // after kSteps slow steps, which is read at the second: after 17 steps of 70 ms or more.
  // Exchanges of short steps are rarer, since each takes some time.
  static constexpr std::int64_t kExchangeSteps = 2;
  static constexpr std::int64_t kExchangeStepsMax = 64;
  static constexpr std::int64_t kExchangeTime = 40'000;  // microseconds
  // Multiple of the factor that recent steps must show where the lasting ones show none.
  static constexpr double kClearlySlow = 1.2;
  // A rank stays named until its recent steps are faster than this share of the factor.
  static constexpr double kStillSlow = 0.8;
  // Shorter differences say nothing of a machine.
  static constexpr std::int64_t kDifferenceMin = 1000;  // microseconds

  // `factor` of 0: no rank is ever slow.
  explicit StragglerRule(double factor) : factor_(factor) {}

  // Takes the fastest steps of each rank.
  void Take(const std::vector<FastestSteps>& fastest);

  const std::optional<Straggler>& slow() const { return slow_; }
  // From one exchange to the next.
  std::int64_t exchange_steps() const { return exchange_steps_; }

 private:
  // The rank that is slower than its peers by `factor` or more.
  using Times = std::vector<std::int64_t>;
  static std::optional<Straggler> Slowest(const Times& fastest, double factor);

  const double factor_;
  std::optional<Straggler> slow_;
  std::int64_t exchange_steps_ = kExchangeSteps;
};

}  // namespace ddprun
