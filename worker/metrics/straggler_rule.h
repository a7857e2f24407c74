// SPDX-License-Identifier: Apache-2.0
// Finds a rank that is slower than its peers, from the time that each needs for a step without
// waiting for the others. Of each rank its fastest step of the last few counts: what delays a
// single step (a page fault, another process) is in no minimum, what slows the rank down is in all.
// Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace ddprun {

// The fastest of a rank's last steps: of kSteps if other processes interrupted none of them, which
// may slow each of them down, else of kStepsInterrupted.
class FastestStep {
 public:
  static constexpr std::size_t kSteps = 16;
  static constexpr std::size_t kStepsInterrupted = 128;

  void Add(std::chrono::microseconds own, bool interrupted = false);
  // In microseconds; 0: it has not made so many steps.
  std::int64_t Get() const;

 private:
  std::deque<std::chrono::microseconds> steps_;
  std::size_t uninterrupted_ = 0;  // the last steps, one after another
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
  // after kSteps slow steps, which is read at the second: after 19 steps at most. Exchanges of
  // short steps are rarer, since each takes some time.
  static constexpr std::int64_t kExchangeSteps = 2;
  static constexpr std::int64_t kExchangeStepsMax = 64;
  static constexpr std::int64_t kExchangeTime = 40'000;  // microseconds
  // A rank stays named until it is faster than this share of the factor.
  static constexpr double kStillSlow = 0.8;
  // Shorter differences say nothing of a machine.
  static constexpr std::int64_t kDifferenceMin = 1000;  // microseconds

  // `factor` of 0: no rank is ever slow.
  explicit StragglerRule(double factor) : factor_(factor) {}

  // The fastest step of each rank in microseconds, by rank; 0: not known.
  void Take(const std::vector<std::int64_t>& fastest);

  const std::optional<Straggler>& slow() const { return slow_; }
  // From one exchange to the next.
  std::int64_t exchange_steps() const { return exchange_steps_; }

 private:
  const double factor_;
  std::optional<Straggler> slow_;
  std::int64_t exchange_steps_ = kExchangeSteps;
};

}  // namespace ddprun
