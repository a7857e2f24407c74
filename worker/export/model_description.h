// SPDX-License-Identifier: Apache-2.0
// What a file of weights does not say itself: which model they are of, and which images it is for,
// with the mean and deviation that these were normalised with. A JSON file beside it, PATH.json.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "worker/config/config.h"
#include "worker/export/model_file.h"

namespace ddprun {

inline constexpr char kDescriptionSuffix[] = ".json";

struct ModelDescription {
  Config config;  // of the settings that make the model, its data and its evaluation
  ModelInput input;
};

// Writes `model_path`.json for the file of weights that is there. Throws std::runtime_error that
// names the path.
void WriteDescription(const std::string& model_path, const Config& config, const ModelInput& input);

// Of the file of weights `model_path`; nothing if there is none. One of other weights (the file was
// replaced, its checksum is another) or that cannot be read is passed over, and `tell` says so.
std::optional<ModelDescription> ReadDescription(const std::string& model_path,
                                                const Notify& notify);

// Parts that a checkpoint has as well. The settings of a machine or of a run are left out: another
// one may evaluate the model. Throw UsageError and nlohmann::json::exception.
Config ConfigFrom(const nlohmann::json& settings, const std::string& path);
ModelInput InputFrom(const nlohmann::json& data);
nlohmann::json ToJson(const ModelInput& input);

}  // namespace ddprun
