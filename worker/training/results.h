// SPDX-License-Identifier: Apache-2.0
// Writes the results of a training, and checks before it begins that they can be written.
#pragma once

#include <string>

#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/models/models.h"
#include "worker/training/summary.h"

namespace ddprun {

inline constexpr char kModelFileName[] = "cifar_net.pth";

// Makes the folder that `option` (--output-dir) names, if it is not there, and makes sure that it
// can be written to, so that a training does not end with nothing. Throws UsageError.
void PrepareFolder(const std::string& option, const std::string& path);

// Makes sure that nothing is in the place of the files that the results are written to. Throws
// UsageError.
void PrepareResults(const std::string& output_dir);

// The model and its description, into --output-dir; sets summary.model_file. Throws
// std::runtime_error.
void WriteModel(ImageModel& model, const Config& config, const Dataset& data, Summary& summary);

// summary.json. Throws std::runtime_error.
void WriteSummary(const Config& config, const Summary& summary);

}  // namespace ddprun
