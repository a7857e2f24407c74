// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/straggler_rule.h"

#include <algorithm>
#include <utility>

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

void OwnSteps::Add(std::chrono::microseconds own, std::chrono::microseconds waited) {
  steps_.push_front({own, waited});
  if (steps_.size() > kStepsMax) steps_.pop_back();
}

FastestSteps OwnSteps::Fastest() const {
  FastestSteps result;
  Step sum{};
  auto fastest = std::chrono::microseconds::max();
  std::size_t count = 0;
  for (const Step& step : steps_) {
    ++count;
    sum.own += step.own;
    sum.waited += step.waited;
    fastest = std::min(fastest, step.own);
    const std::int64_t now = std::max<std::int64_t>(1, fastest.count());
    const bool enough = count >= kSteps && sum.own >= kTime && sum.waited <= kWaitedShare * sum.own;
    if (result.recent == 0 && (enough || count == kStepsMax)) result.recent = now;
    if (count == kStepsMax) result.lasting = now;
  }
  return result;
}

std::optional<Straggler> StragglerRule::Slowest(const Times& fastest, double factor) {
  const auto slowest = std::max_element(fastest.begin(), fastest.end());
  const auto rank = static_cast<std::size_t>(slowest - fastest.begin());
  const std::int64_t peers = MedianOfPeers(fastest, rank);
  if (peers == 0 || *slowest - peers < kDifferenceMin) return std::nullopt;
  const Straggler found{static_cast<int>(rank),
                        static_cast<double>(*slowest) / static_cast<double>(peers)};
  return found.factor < factor ? std::nullopt : std::optional(found);
}

void StragglerRule::Take(const std::vector<FastestSteps>& fastest) {
  if (factor_ <= 0 || fastest.empty()) return;
  Times recent;
  Times lasting;
  for (const FastestSteps& one : fastest) {
    recent.push_back(one.recent);
    lasting.push_back(one.lasting);
  }
  const std::int64_t step = *std::max_element(recent.begin(), recent.end());
  if (step > 0)
    exchange_steps_ = std::clamp(kExchangeTime / step, kExchangeSteps, kExchangeStepsMax);
  const std::optional<Straggler> before =
      std::exchange(slow_, Slowest(recent, kClearlySlow * factor_));
  if (slow_) return;
  const std::optional<Straggler> still = Slowest(recent, kStillSlow * factor_);
  const std::optional<Straggler> lasts = Slowest(lasting, factor_);
  if (still && ((before && before->rank == still->rank) || (lasts && lasts->rank == still->rank)))
    slow_ = still;
}

}  // namespace ddprun
