// SPDX-License-Identifier: Apache-2.0
// Implements --resume: rank 0 decides for all ranks where a training begins.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "worker/library/checkpoint/checkpoint_folder.h"

namespace ddprun {

struct WorkerEnv;

// Whether the launcher has started these workers in place of others.
bool Restarted(const WorkerEnv& env);

struct ResumeOptions {
  std::string resume;       // auto, restart, never, or a file or folder of checkpoints
  bool restarted = false;   // the launcher has restarted the workers
  std::string run;          // the launcher's name for the run; empty: it has given none
  nlohmann::json settings;  // what defines the training: an object, compared with "config" in
                            // Snapshot::about
  std::string folder;       // of this training's checkpoints
  bool saving = false;      // it will write checkpoints there: the folder is there
};

struct ResumePoint {
  std::string training;                       // its name from here on, see checkpoint_folder.h
  std::optional<FoundCheckpoint> checkpoint;  // none: from the beginning
};

// auto      the newest good checkpoint of the folder's training, or else of any that is there
// restart   after a restart, the newest good one that this run has saved with these settings
// never     nothing
// PATH      that one; after a restart what this run has saved since
// What starts anew in a folder with checkpoints of an earlier training says so: they are deleted
// when as many new ones are there as are to be kept. Throws CheckpointError (a PATH that is not
// good) and std::runtime_error (training.json cannot be written).
ResumePoint DecideResume(const ResumeOptions& options, const Notify& notify);

// Why a checkpoint cannot go on as this training, as the end of a sentence that begins with the
// checkpoint: "is of --model resnet18, but this training is of --model linear". Empty if it can.
// Both are Snapshot::about; what counts is what parameters, optimizer state and the order of
// labels are made of. The number of ranks, of training images, the batch size and the learning rate
// may be others.
std::string Misfit(const nlohmann::json& checkpoint, const nlohmann::json& training);

// The first label that stands for another class, by the names of two data sets' classes, which a
// label is the place of. Absent: none does, as far as both have names.
std::optional<std::size_t> FirstOtherClass(const std::vector<std::string>& theirs,
                                           const std::vector<std::string>& ours);

}  // namespace ddprun
