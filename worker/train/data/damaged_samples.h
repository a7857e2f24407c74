// SPDX-License-Identifier: Apache-2.0
// Samples whose files are damaged, where a training goes on without them (--skip-damaged). A sample
// keeps its place in the order of an epoch, which the next whole sample of the set fills: so the
// number of samples, the steps, the other samples' places and what a checkpoint says of them are
// those of a set without damage, and each place is a function of the files alone, on any rank and
// after any resume. An evaluation leaves such samples out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "worker/train/data/dataset.h"

namespace ddprun {

// Samples in a row that may be damaged: more of them are a disk that is gone.
inline constexpr std::int64_t kDamagedInARowMax = 100;

// Damaged files that one process names; it says once that there are more.
inline constexpr std::size_t kDamagedNamedMax = 20;

// Thread-safe.
class DamagedSamples {
 public:
  // `tell` takes a line for people.
  explicit DamagedSamples(std::function<void(const std::string&)> tell) : tell_(std::move(tell)) {}

  // Tells of a sample when it is met for the first time.
  void Met(const DamagedSample& sample);

  // Places of training batches that another sample has filled, since the last Take().
  void CountFilled(std::int64_t places);
  std::int64_t TakeFilled();

 private:
  const std::function<void(const std::string&)> tell_;
  std::mutex mutex_;  // for all below
  std::set<std::string> met_;
  std::int64_t filled_ = 0;
};

}  // namespace ddprun
