// SPDX-License-Identifier: Apache-2.0
// What a checkpoint of a training holds, and how it returns into the parts of all ranks. Rank 0 has
// the file; it sends the tensors to the others one after another, as ranks that share a model need
// different ones.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ddprun/distributed_data_parallel.h"
#include "ddprun/world.h"
#include "worker/library/checkpoint/checkpoint_folder.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/step/training_plan.h"
#include "worker/train/training/training_parts.h"

namespace ddprun {

// The scale of fp16's gradients in a checkpoint (Snapshot::about). None if its training did not
// scale: it has saved 1, with which small gradients vanish. Nor of one that had come below 1, which
// ends a training. Throws HeaderError.
std::optional<GradScaler::State> SavedScale(const nlohmann::json& about);

// Where a checkpoint's training is (Snapshot::about). Throws HeaderError.
TrainingPlace SavedPlace(const nlohmann::json& about);

// The same in a data set of `images` training images. Of another number the epoch's order is
// another one, in which nothing says what was seen: the epoch begins again. Throws HeaderError.
TrainingPlace SavedPlaceAmong(std::int64_t images, const nlohmann::json& about);

// Training images of a checkpoint's data set (Snapshot::about); none if it does not say. Throws
// HeaderError.
std::optional<std::int64_t> SavedImages(const nlohmann::json& about);

// How the gradients were summed in a checkpoint's training (Snapshot::about). Empty if it does not
// say so, in words that can be read.
BucketLayout SavedLayout(const nlohmann::json& about);

class TrainingSnapshot {
 public:
  // All must outlive this object.
  TrainingSnapshot(const Config& config, const Dataset& data, World& world, TrainingParts& parts)
      : config_(config), data_(data), world_(world), parts_(parts) {}

  // On rank 0: throws UsageError if the checkpoint is of another training, CheckpointError if its
  // header lacks what Load() reads.
  void CheckFits(const FoundCheckpoint& checkpoint) const;

  // Copies rank 0's snapshot, null on the other ranks, into the parts of all ranks. `about` is its
  // Snapshot::about, `tensors` the TensorList() of its tensors. All ranks must call it.
  TrainingPlace Load(const Snapshot* snapshot, const nlohmann::json& about,
                     const nlohmann::json& tensors);

  // Collects the tensors of all ranks on rank 0; nothing on the others. All ranks must call it. If
  // a device has no memory left for it, Complete() says so.
  struct Gathered {
    std::string error;  // why there is nothing in it; the same on all ranks
    NamedTensors tensors;
  };
  Gathered Gather();
  // On rank 0: the snapshot of the training that is called `training` at `place`. Whatever changes
  // before the next update is copied. Throws std::exception with one sentence if it cannot be made.
  Snapshot Complete(Gathered gathered, const TrainingPlace& place,
                    const std::string& training) const;

 private:
  nlohmann::json About(const TrainingPlace& place, const std::string& training) const;
  void CopyIn(const Snapshot* snapshot, const nlohmann::json& tensors);

  const Config& config_;
  const Dataset& data_;
  World& world_;
  TrainingParts& parts_;
};

}  // namespace ddprun
