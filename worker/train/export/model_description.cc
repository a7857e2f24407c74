// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/model_description.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "proto/input_file.h"
#include "proto/json_text.h"
#include "worker/library/base/text.h"
#include "worker/library/files/atomic_file.h"
#include "worker/library/files/crc32c.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "ddprun-model-1";
constexpr std::uintmax_t kBytesMax = 1u << 20;
constexpr std::size_t kChunkBytes = 1u << 20;

std::string ChecksumOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> chunk(kChunkBytes);
  std::uint32_t sum = 0;
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0)
    sum = Crc32c(chunk.data(), static_cast<std::size_t>(file.gcount()), sum);
  if (file.bad() || !file.eof()) throw std::runtime_error(path + " cannot be read");
  return Hex(sum);
}

}  // namespace

bool DescribesModel(const Setting& setting) {
  static constexpr std::array kKeys = {
      "model",           "model-file", "shared-blocks", "stem",          "width",
      "whiten-epochs",   "dataset",    "data-dir",      "samples",       "input-size",
      "num-classes",     "val-share",  "seed",          "channels-last", "amp",
      "eval-batch-size", "tta"};
  return std::find(kKeys.begin(), kKeys.end(), setting.key) != kKeys.end();
}

Config ConfigFrom(const HeaderFields& settings, const std::string& path) {
  Config config;
  for (const std::string& key : settings.Keys()) {
    const Setting* setting = FindSetting(key);
    const std::string text = settings.Text(key);
    // Settings of newer versions are ignored; an empty text means that the setting is not set.
    if (setting != nullptr && DescribesModel(*setting) && !text.empty())
      SetFromText(config, *setting, text, path + ": " + key);
  }
  return config;
}

ModelInput InputFrom(const HeaderFields& data) {
  ModelInput input{.channels = data.Count("channels"),
                   .height = data.Count("height"),
                   .width = data.Count("width"),
                   .classes = data.Count("classes"),
                   .mean = data.Numbers("mean"),
                   .std = data.Numbers("std"),
                   .class_names = {}};
  if (data.Has("class_names")) input.class_names = data.Texts("class_names");
  return input;
}

nlohmann::json ToJson(const ModelInput& input) {
  nlohmann::json json = {{"classes", input.classes}, {"channels", input.channels},
                         {"height", input.height},   {"width", input.width},
                         {"mean", input.mean},       {"std", input.std}};
  if (!input.class_names.empty()) json["class_names"] = input.class_names;
  return json;
}

void WriteDescription(const std::string& model_path, const Config& config, const ModelInput& input,
                      const std::string& training) {
  Json settings = Json::object();
  for (const Setting& setting : Settings()) {
    const std::string text = ToText(config, setting);
    if (DescribesModel(setting) && !text.empty()) settings[setting.key] = text;
  }
  Json json{{"format", kFormat},
            {"crc32c", ChecksumOf(model_path)},
            {"settings", settings},
            {"data", ToJson(input)}};
  if (!training.empty()) json[kTrainingKey] = training;
  const std::string text = JsonText(json, 2) + "\n";
  WriteFile(model_path + kDescriptionSuffix, text);
}

std::string TrainingOfModel(const std::string& model_path) {
  const auto text = ReadRegularFile(model_path + kDescriptionSuffix, kBytesMax);
  if (!text.ok()) return "";
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const bool names =
      json.is_object() && json.contains(kTrainingKey) && json.at(kTrainingKey).is_string();
  return names ? json.at(kTrainingKey).get<std::string>() : "";
}

bool SameBytes(const std::string& path, const std::string& other) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || std::filesystem::file_size(other, error) != size || error) return false;
  try {
    return ChecksumOf(path) == ChecksumOf(other);
  } catch (const std::runtime_error&) {
    return false;
  }
}

std::optional<ModelDescription> ReadDescription(const std::string& model_path,
                                                const Notify& notify) {
  const std::string path = model_path + kDescriptionSuffix;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const auto pass_over = [&](const std::string& fact) -> std::optional<ModelDescription> {
    notify(path + " " + fact +
           "; it is passed over, and --model and --dataset say what the weights are of");
    return std::nullopt;
  };
  if (std::filesystem::file_size(path, error) > kBytesMax || error)
    return pass_over("is too large for a description of a model");
  std::ifstream file(path);
  try {
    const auto json = nlohmann::json::parse(file);
    if (json.at("format") != kFormat) return pass_over("is not a description of a model");
    if (json.at("crc32c") != ChecksumOf(model_path)) return pass_over("is of other weights");
    return ModelDescription{.config = ConfigFrom(HeaderFields(json.at("settings"), "config"), path),
                            .input = InputFrom(HeaderFields(json.at("data"), "data"))};
  } catch (const nlohmann::json::exception&) {
    return pass_over("is not a description of a model");
  } catch (const HeaderError&) {
    return pass_over("is not a description of a model");
  }
}

}  // namespace ddprun
