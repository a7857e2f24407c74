// SPDX-License-Identifier: Apache-2.0
#include "worker/evaluation/calibrate.h"

#include <algorithm>
#include <numeric>

#include "worker/loader/loader.h"

namespace ddprun {
namespace {

constexpr std::int64_t kBatch = 500;

}  // namespace

void CalibrateOnImages(ImageModel& model, const SampleSet& train, const Config& config) {
  const std::int64_t count = std::min(model.calibration_images(), train.size());
  if (count == 0) return;
  std::vector<std::int64_t> first(static_cast<std::size_t>(count));
  std::iota(first.begin(), first.end(), 0);
  Loader loader(train, std::move(first), kBatch,
                {.channels_last = config.channels_last, .threads = config.loader_threads});
  while (const auto batch = loader.Next()) model.Calibrate(batch->images);
}

}  // namespace ddprun
