// SPDX-License-Identifier: Apache-2.0
#include "worker/synthetic.h"

#include <ATen/Functions.h>

#include <vector>

#include "worker/random.h"

namespace ddprun {
namespace {

constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kSide = 32;
constexpr std::int64_t kCell = 8;  // a pattern is 4x4 cells of 8x8 pixels
constexpr std::int64_t kCells = kSide / kCell;
// Shades of a pattern are 0 to 127, noise is up to 128: no pixel tells the class, the pattern as a
// whole does.
constexpr std::uint32_t kShades = 128;
constexpr std::uint32_t kNoise = 129;

enum Stream : std::uint64_t { kPatterns, kTrain, kTest };

std::vector<std::uint8_t> MakePatterns(std::uint64_t seed) {
  SplitMix64 random({seed, kPatterns});
  std::vector<std::uint8_t> patterns(kClasses * kChannels * kCells * kCells);
  for (auto& shade : patterns) shade = static_cast<std::uint8_t>(random.Below(kShades));
  return patterns;
}

LabelledImages MakeImages(std::int64_t count, std::uint64_t seed, Stream stream,
                          const std::vector<std::uint8_t>& patterns) {
  LabelledImages set{at::empty({count, kChannels, kSide, kSide}, at::kByte),
                     at::empty({count}, at::kLong)};
  auto* pixel = set.images.data_ptr<std::uint8_t>();
  auto* labels = set.labels.data_ptr<std::int64_t>();
  SplitMix64 random({seed, stream});
  for (std::int64_t i = 0; i < count; ++i) {
    labels[i] = random.Below(kClasses);
    for (std::int64_t c = 0; c < kChannels; ++c) {
      const std::uint8_t* pattern = patterns.data() + (labels[i] * kChannels + c) * kCells * kCells;
      for (std::int64_t y = 0; y < kSide; ++y) {
        for (std::int64_t x = 0; x < kSide; ++x) {
          *pixel++ = static_cast<std::uint8_t>(pattern[y / kCell * kCells + x / kCell] +
                                               random.Below(kNoise));
        }
      }
    }
  }
  return set;
}

}  // namespace

Dataset OpenSynthetic(const DatasetOptions& options) {
  const std::vector<std::uint8_t> patterns = MakePatterns(options.seed);
  Dataset set;
  set.train = MakeImages(kSyntheticTrainImages, options.seed, kTrain, patterns);
  set.test = MakeImages(kSyntheticTestImages, options.seed, kTest, patterns);
  set.classes = kClasses;
  set.channels = kChannels;
  set.mean = {0.5f, 0.5f, 0.5f};
  set.std = {0.25f, 0.25f, 0.25f};
  return set;
}

}  // namespace ddprun
