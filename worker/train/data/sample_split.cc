// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/sample_split.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>

#include "rendezvous/base/random.h"
#include "worker/library/files/crc32c.h"

namespace ddprun {
namespace {

constexpr std::uint64_t kSplit =
    0x73706c6974;  // a stream of its own: other draws have the seed, too

std::int64_t TestCount(std::size_t samples, double share) {
  const auto all = static_cast<std::int64_t>(samples);
  const std::int64_t rounded = std::llround(static_cast<double>(all) * share);
  return std::min(std::max<std::int64_t>(rounded, 1), all - 1);
}

}  // namespace

SampleSplit SplitSamples(const std::vector<SplitSample>& samples, double test_share,
                         std::uint64_t seed) {
  using Place = std::tuple<std::uint64_t, std::string, std::int64_t>;  // draw, name, index
  std::map<std::int64_t, std::vector<Place>> by_label;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::string& name = samples[i].name;
    const std::uint64_t draw = SplitMix64({kSplit, seed, Crc32c(name.data(), name.size())}).Next();
    by_label[samples[i].label].emplace_back(draw, name, static_cast<std::int64_t>(i));
  }
  SampleSplit split;
  for (auto& [label, places] : by_label) {
    std::sort(places.begin(), places.end());
    const std::int64_t tested = TestCount(places.size(), test_share);
    for (std::size_t i = 0; i < places.size(); ++i) {
      auto& side = static_cast<std::int64_t>(i) < tested ? split.test : split.train;
      side.push_back(std::get<2>(places[i]));
    }
  }
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.test.begin(), split.test.end());
  return split;
}

}  // namespace ddprun
