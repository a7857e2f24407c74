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

void FastestStep::Add(std::chrono::microseconds own, bool interrupted) {
  steps_.push_back(own);
  if (steps_.size() > kStepsInterrupted) steps_.pop_front();
  uninterrupted_ = interrupted ? 0 : uninterrupted_ + 1;
}

std::int64_t FastestStep::Get() const {
  const std::size_t count = uninterrupted_ >= kSteps ? kSteps : kStepsInterrupted;
  if (steps_.size() < count) return 0;
  const auto from = steps_.end() - static_cast<std::ptrdiff_t>(count);
  return std::max<std::int64_t>(1, std::min_element(from, steps_.end())->count());
}

void StragglerRule::Take(const std::vector<std::int64_t>& fastest) {
  if (factor_ <= 0 || fastest.empty()) return;
  const auto slowest = std::max_element(fastest.begin(), fastest.end());
  if (*slowest > 0) {
    exchange_steps_ = std::clamp(kExchangeTime / *slowest, kExchangeSteps, kExchangeStepsMax);
  }
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
