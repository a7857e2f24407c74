// SPDX-License-Identifier: Apache-2.0
// Data generated from a seed; no files are needed. For tests, benchmarks and first steps.
#include <ATen/Functions.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/random.h"
#include "worker/train/data/dataset.h"
#include "worker/train/data/fixed_size_images.h"

namespace ddprun {
namespace {

// Limit of the generated data, in each rank's memory.
constexpr std::int64_t kSyntheticBytesMax = std::int64_t{16} << 30;
constexpr std::int64_t kSyntheticChannels = 3;
constexpr std::int64_t kCells = 4;  // a pattern is 4x4 cells
// Shades of a pattern are 0 to 127, noise is up to 128: no pixel tells the class, the pattern as a
// whole does.
constexpr std::uint32_t kShades = 128;
constexpr std::uint32_t kNoise = 129;
constexpr std::int64_t kSyntheticClassesMax = 1'000'000;

enum Stream : std::uint64_t { kPatterns, kTrain, kTest };

// How many samples for training and for testing.
std::pair<std::int64_t, std::int64_t> Sizes(const DatasetOptions& options, std::int64_t classes,
                                            std::int64_t sample_bytes) {
  const std::int64_t test = std::max<std::int64_t>(1, options.samples / 4);
  if (options.samples > kSyntheticBytesMax / sample_bytes - test) {
    throw DataError("--samples " + std::to_string(options.samples) + " with --input-size " +
                    std::to_string(options.input_size) + " are more than " +
                    std::to_string(kSyntheticBytesMax >> 30) +
                    " GiB of made-up data; take fewer or smaller ones");
  }
  if (classes > kSyntheticClassesMax) {
    throw DataError("--num-classes " + std::to_string(classes) + " is more than the " +
                    std::to_string(kSyntheticClassesMax) +
                    " that made-up data can have; take fewer");
  }
  return {options.samples, test};
}

std::int64_t SquareBytes(std::int64_t side) {
  // More than any limit where the square would overflow.
  return side > (std::int64_t{1} << 20) ? kSyntheticBytesMax : kSyntheticChannels * side * side;
}

std::vector<std::uint8_t> MakePatterns(std::uint64_t seed, std::int64_t classes) {
  SplitMix64 random({seed, kPatterns});
  std::vector<std::uint8_t> patterns(
      static_cast<std::size_t>(classes * kSyntheticChannels * kCells * kCells));
  for (auto& shade : patterns) shade = static_cast<std::uint8_t>(random.Below(kShades));
  return patterns;
}

LabelledImages MakeImages(std::int64_t count, std::int64_t side, std::int64_t classes,
                          std::uint64_t seed, Stream stream,
                          const std::vector<std::uint8_t>& patterns) {
  LabelledImages set{at::empty({count, kSyntheticChannels, side, side}, at::kByte),
                     at::empty({count}, at::kLong)};
  auto* pixel = set.images.data_ptr<std::uint8_t>();
  auto* labels = set.labels.data_ptr<std::int64_t>();
  std::vector<std::uint8_t> row(static_cast<std::size_t>(side));
  SplitMix64 random({seed, stream});
  for (std::int64_t i = 0; i < count; ++i) {
    labels[i] = random.Below(static_cast<std::uint32_t>(classes));
    for (std::int64_t c = 0; c < kSyntheticChannels; ++c) {
      const std::uint8_t* pattern =
          patterns.data() + (labels[i] * kSyntheticChannels + c) * kCells * kCells;
      for (std::int64_t y = 0; y < side; ++y) {
        const std::uint8_t* cells = pattern + y * kCells / side * kCells;
        for (std::int64_t x = 0; x < side; ++x) row[x] = cells[x * kCells / side];
        for (std::int64_t x = 0; x < side; ++x) {
          *pixel++ = static_cast<std::uint8_t>(row[x] + random.Below(kNoise));
        }
      }
    }
  }
  return set;
}

LabelledImages MakeRows(std::int64_t count, std::int64_t width, std::int64_t classes,
                        std::uint64_t seed, Stream stream) {
  LabelledImages set{at::empty({count, 1, 1, width}, at::kByte), at::empty({count}, at::kLong)};
  auto* labels = set.labels.data_ptr<std::int64_t>();
  SplitMix64 random({seed, stream});
  for (std::int64_t i = 0; i < count; ++i) {
    labels[i] = random.Below(static_cast<std::uint32_t>(classes));
  }
  auto* value = set.images.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < set.images.numel(); ++i) {
    value[i] = static_cast<std::uint8_t>(random.Below(256));
  }
  return set;
}

// Images that can be learnt: each class (10 if not asked otherwise) has a coarse pattern of its
// own, under noise. 3 x input_size x input_size, `samples` for training and a quarter as many for
// testing. Throws DataError if that is more than kSyntheticBytesMax.
Dataset OpenSynthetic(const DatasetOptions& options) {
  const std::int64_t classes = options.classes.value_or(10);
  const std::int64_t side = options.input_size;
  const auto [train, test] = Sizes(options, classes, SquareBytes(side));
  const auto patterns = MakePatterns(options.seed, classes);
  Dataset set{.classes = classes, .mean = {0.5f, 0.5f, 0.5f}, .std = {0.25f, 0.25f, 0.25f}};
  const FixedSizeImages::Options shown{
      .shape = {kSyntheticChannels, side, side}, .mean = set.mean, .std = set.std};
  set.train = std::make_shared<FixedSizeImages>(
      std::vector{MakeImages(train, side, classes, options.seed, kTrain, patterns)}, shown);
  set.test = std::make_shared<FixedSizeImages>(
      std::vector{MakeImages(test, side, classes, options.seed, kTest, patterns)}, shown);
  return set;
}

// Rows of `input_size` random numbers with random labels of 2 classes, if not asked otherwise: 1 x
// 1 x input_size. Nothing can be learnt from it but by heart. Throws as above.
Dataset OpenRandom(const DatasetOptions& options) {
  const std::int64_t classes = options.classes.value_or(2);
  const std::int64_t width = options.input_size;
  const auto [train, test] = Sizes(options, classes, width);
  Dataset set{.classes = classes, .mean = {0.5f}, .std = {0.25f}};
  const FixedSizeImages::Options shown{
      .shape = {1, 1, width}, .mean = set.mean, .std = set.std, .varied = false};
  set.train = std::make_shared<FixedSizeImages>(
      std::vector{MakeRows(train, width, classes, options.seed, kTrain)}, shown);
  set.test = std::make_shared<FixedSizeImages>(
      std::vector{MakeRows(test, width, classes, options.seed, kTest)}, shown);
  return set;
}

const bool kSyntheticAdded =
    Datasets().Add("random", OpenRandom) && Datasets().Add("synthetic", OpenSynthetic);

}  // namespace
}  // namespace ddprun
