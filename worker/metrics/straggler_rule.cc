// SPDX-License-Identifier: Apache-2.0
#include "worker/metrics/straggler_rule.h"

#include <algorithm>

namespace ddprun {
namespace {

// The median of the others, the upper one of two; 0: there are none.
std::int64_t MedianOfPeers(const std::vector<std::int64_t>& fastest, std::size_t rank) {
  std::vector<std::int64_t> peers;
  for (std::size_t i = 0; i < fastest.size(); ++i) {
    if (i != rank && fastest[i] > 0) peers.push_back(fastest[i]);
  }
  if (peers.empty()) return 0;
  const auto median = peers.begin() + static_cast<std::ptrdiff_t>(peers.size() / 2);
  std::nth_element(peers.begin(), median, peers.end());
  return *median;
}

}  // namespace

void FastestStep::Add(std::chrono::microseconds own, Time end) {
  steps_.push_back({own, end});
  const auto is_enough_without_first = [&] {
    return steps_.size() > kSteps && (end - steps_[1].end >= span_ || steps_.size() > kStepsMax);
  };
  while (is_enough_without_first()) steps_.pop_front();
}

std::int64_t FastestStep::Get() const {
  if (steps_.size() < kSteps) return 0;
  if (steps_.size() < kStepsMax && steps_.back().end - steps_.front().end < span_) return 0;
  const auto fastest = std::min_element(steps_.begin(), steps_.end(),
                                        [](const Step& a, const Step& b) { return a.own < b.own; });
  return std::max<std::int64_t>(1, fastest->own.count());
}

void StragglerRule::Take(const std::vector<std::int64_t>& fastest) {
  if (factor_ <= 0 || fastest.empty()) return;
  const auto slowest = std::max_element(fastest.begin(), fastest.end());
  const auto rank = static_cast<std::size_t>(slowest - fastest.begin());
  const std::int64_t peers = MedianOfPeers(fastest, rank);
  const bool was_slow = slow_ && slow_->rank == static_cast<int>(rank);
  slow_.reset();
  if (peers == 0 || *slowest - peers < kDifferenceMin) return;
  const double factor = static_cast<double>(*slowest) / static_cast<double>(peers);
  if (factor < (was_slow ? kStillSlow * factor_ : factor_)) return;
  slow_ = Straggler{static_cast<int>(rank), factor};
}

}  // namespace ddprun
