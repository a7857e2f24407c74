// SPDX-License-Identifier: Apache-2.0
// Writes the results of a training, and checks before it begins that they can be written.
#pragma once

#include <chrono>
#include <string>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/metrics/console.h"
#include "worker/train/training/kept_training.h"

namespace ddprun {

// Makes the folder that `option` (--output-dir) names, if it is not there, and makes sure that it
// can be written to, so that a training does not end with nothing. Throws UsageError.
void PrepareFolder(const std::string& option, const std::string& path);

// Makes sure that nothing but a file or a link is in the place of those that the results are
// written to. Throws UsageError.
void PrepareResults(const std::string& output_dir, const std::string& model_file);

double SecondsSince(std::chrono::steady_clock::time_point start);

// Completes the summary and, on rank 0, writes the averaged model, its description and summary.json
// into --output-dir and prints the table. Those of an earlier training there are kept, which a line
// says. All ranks must call it. Throws std::runtime_error.
void WriteResults(const Config& config, const Dataset& data, World& world, Console& console,
                  KeptTraining& kept);

}  // namespace ddprun
