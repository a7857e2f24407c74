// SPDX-License-Identifier: Apache-2.0
// PATH.json beside a file of weights: what the file does not contain itself, which are the settings
// of the model, and the size, mean and deviation of the images that it was trained on.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "worker/library/checkpoint/header_fields.h"
#include "worker/train/config/config.h"
#include "worker/train/export/model_file.h"

namespace ddprun {

inline constexpr char kDescriptionSuffix[] = ".json";

struct ModelDescription {
  Config config;  // only settings of the model, its data and its evaluation
  ModelInput input;
};

// Writes `model_path`.json for the existing file of weights; `training` is the name of the training
// that they are of (checkpoint_folder.h), empty if they are exported. Throws std::runtime_error
// that names the path.
void WriteDescription(const std::string& model_path, const Config& config, const ModelInput& input,
                      const std::string& training = "");

// Reads `model_path`.json; empty if there is none. A description of other weights (its checksum
// differs, because the file was replaced) or one that cannot be read is ignored, and `notify`
// receives a sentence about it.
std::optional<ModelDescription> ReadDescription(const std::string& model_path,
                                                const Notify& notify);

// The training that `model_path`.json names; empty if it names none. Does not throw.
std::string TrainingOfModel(const std::string& model_path);

// Whether two files can be read and have the same bytes, as far as size and checksum tell.
bool SameBytes(const std::string& path, const std::string& other);

// Whether a setting is part of what a model file says of its model: of its architecture, its data
// or its evaluation.
bool DescribesModel(const Setting& setting);

// Parts that a checkpoint contains too, under "config" and "data". Settings of the machine and of
// the run are omitted: another machine may evaluate the model. Throw UsageError and HeaderError.
Config ConfigFrom(const HeaderFields& settings, const std::string& path);
ModelInput InputFrom(const HeaderFields& data);
nlohmann::json ToJson(const ModelInput& input);

}  // namespace ddprun
