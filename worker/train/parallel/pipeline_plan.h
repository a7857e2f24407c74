// SPDX-License-Identifier: Apache-2.0
// Validates the pipeline settings and chooses where the model is cut.
#pragma once

#include <string>
#include <vector>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/models/models.h"
#include "worker/train/pipeline/actions.h"

namespace ddprun {

struct PipelinePlan {
  int stages = 1;
  int micro_batches = 1;
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
};

// Micro-batches that --micro-batches 0 stands for: a stage is idle for about a fifth of a step
// then.
inline constexpr int kMicroBatchesPerStage = 4;

// Throws UsageError: a world size that is no multiple of the stages, a batch that the micro-batches
// cannot share. One rank alone has all stages in its own process.
PipelinePlan MakePipelinePlan(const Config& config, int world_size);

// How many models there are: ranks, or groups of ranks that share one. Throws as
// MakePipelinePlan().
int DataParallelSize(const Config& config, int world_size);

// The first part of each stage, the same on all ranks: measured on rank 0 on one micro-batch of
// images of `image_sizes` (channels, height, width), or with --deterministic estimated. Throws
// UsageError if the model has too few parts. All ranks must call it.
std::vector<std::size_t> ChooseCuts(const Config& config, const PipelinePlan& plan, World& world,
                                    ImageModel& model,
                                    const std::vector<std::int64_t>& image_sizes);

// "stage 0: stem, layer1.0; stage 1: layer1.1, head"
std::string DescribeStages(ImageModel& model, const std::vector<std::size_t>& cuts);

}  // namespace ddprun
