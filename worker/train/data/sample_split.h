// SPDX-License-Identifier: Apache-2.0
// A share of a set of samples, set aside for testing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/train/data/dataset.h"

namespace ddprun {

// One sample of a set that is split.
struct SplitSample {
  std::int64_t label = 0;
  std::string name;  // no other sample of the set has it
};

struct SampleSplit {
  std::vector<std::int64_t> train;  // places in the set, ascending
  std::vector<std::int64_t> test;
};

// Takes a share `test_share` (above 0, below 1) of each label's samples for testing, rounded, at
// least one where the label has two samples, and never all. Which they are depends on `seed` and
// the names alone: where samples are added or removed, the others stay on their side, but for a few
// at the boundary. Pure.
SampleSplit SplitSamples(const std::vector<SplitSample>& samples, double test_share,
                         std::uint64_t seed);

// Some samples of another set, in the order of `indices`.
class SampleSubset : public SampleSet {
 public:
  SampleSubset(std::shared_ptr<const SampleSet> all, std::vector<std::int64_t> indices)
      : all_(std::move(all)), indices_(std::move(indices)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  std::int64_t Label(std::int64_t index) const override { return all_->Label(In(index)); }
  SampleShape shape() const override { return all_->shape(); }
  void Write(std::int64_t index, const Draw* draw, bool channels_last, float* out) const override {
    all_->Write(In(index), draw, channels_last, out);
  }
  void Check(std::int64_t index) const override { all_->Check(In(index)); }

 private:
  std::int64_t In(std::int64_t index) const { return indices_[static_cast<std::size_t>(index)]; }

  const std::shared_ptr<const SampleSet> all_;
  const std::vector<std::int64_t> indices_;
};

}  // namespace ddprun
