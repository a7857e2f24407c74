// SPDX-License-Identifier: Apache-2.0
#include "worker/export/model_file.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "worker/export/model_description.h"
#include "worker/export/transformers_names.h"
#include "worker/files/safetensors.h"
#include "worker/files/state_dict.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// The prefixes of a checkpoint's tensors (worker/checkpoint).
constexpr std::string_view kModelPrefix = "model/";
constexpr std::string_view kAveragePrefix = "ema/";

bool IsZip(const std::string& path) {
  char magic[2] = {};
  if (!fs::is_regular_file(path)) return false;  // to open a FIFO would wait for its writer
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return magic[0] == 'P' && magic[1] == 'K';
}

bool IsCheckpoint(const SafetensorsFile& file) {
  const auto format = file.metadata().find("format");
  return format != file.metadata().end() && format->second.starts_with("ddprun-checkpoint-");
}

// Names and tensors under `prefix`, without it.
std::map<std::string, at::Tensor> Under(std::string_view prefix, const NamedTensors& tensors) {
  std::map<std::string, at::Tensor> found;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(prefix)) found.emplace(name.substr(prefix.size()), tensor);
  }
  return found;
}

ModelFile FromCheckpoint(const FoundCheckpoint& found, ModelFileOptions options) {
  const auto& [path, snapshot] = found;
  ModelFile model{.path = path};
  try {
    const HeaderFields header(snapshot.about);
    model.config = ConfigFrom(header.Object("config"), path);
    model.input = InputFrom(header.Object("data"));
    model.step = header.Count("step");
  } catch (const HeaderError& error) {
    throw std::runtime_error(path + " does not say what its model is: " + error.what() +
                             kNameAnother);
  }
  auto tensors = Under(kModelPrefix, snapshot.tensors);
  if (options.averaged) {
    // Buffers are not averaged: the model's own are kept.
    for (auto& [name, tensor] : Under(kAveragePrefix, snapshot.tensors)) {
      tensors[name] = tensor;
      model.averaged = true;
    }
  }
  model.tensors.assign(tensors.begin(), tensors.end());
  return model;
}

ModelFile WithDescription(ModelFile model, const std::string& name,
                          const ModelFileOptions& options) {
  if (auto description = ReadDescription(name, options.notify)) {
    model.config = std::move(description->config);
    model.input = std::move(description->input);
  }
  return model;
}

// transformers' ResNet has variants that differ from torchvision's, which the names do not show.
void CheckTransformersConfig(const std::string& folder) {
  const std::string path = std::filesystem::path(folder) / "config.json";
  std::ifstream file(path);
  if (!file) return;
  const nlohmann::json config = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) throw std::runtime_error(path + " is not a JSON object");
  const auto require = [&](const char* key, const nlohmann::json& needed) {
    if (config.value(key, needed) == needed) return;
    throw std::runtime_error(path + ": " + key + " is " + config[key].dump() +
                             ", but the models here need " + needed.dump());
  };
  require("downsample_in_first_stage", false);
  require("downsample_in_bottleneck", false);
  require("hidden_act", "relu");
}

// "model.fc.weight" in a folder that SaveForTransformers() wrote.
constexpr std::string_view kWrapperPrefix = "model.";

// For a tensor with several names, a checkpoint contains the average under the first name and the
// weights themselves under the others.
void TakeFirstNames(const ImageModel& model, std::map<std::string, at::Tensor>& given) {
  std::map<const c10::TensorImpl*, std::string> first_names;
  for (const auto& [name, tensor] : StateDict(model)) {
    const auto [first, is_new] = first_names.emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new && given.contains(first->second)) given[name] = given[first->second];
  }
}

}  // namespace

ModelInput InputOf(const Dataset& data) {
  return {.channels = data.shape().channels,
          .height = data.shape().height,
          .width = data.shape().width,
          .classes = data.classes,
          .mean = data.mean,
          .std = data.std,
          .class_names = data.class_names};
}

ModelOptions ModelOptionsOf(const Config& config, const ModelInput& input) {
  return {.in_channels = input.channels,
          .height = input.height,
          .width = input.width,
          .classes = input.classes,
          .shared_blocks = config.shared_blocks,
          .stem = config.stem,
          .widening = config.width,
          .whiten_epochs = config.whiten_epochs,
          .model_file = config.model_file};
}

ModelFile ReadModelFile(const std::string& path, ModelFileOptions options) {
  if (!fs::exists(path)) throw std::runtime_error(path + " is not there");
  std::string name = path;
  if (fs::is_directory(path)) {
    name = fs::path(path) / "model.safetensors";
    if (!fs::exists(name)) {
      return FromCheckpoint(OpenCheckpoint(path, options.notify), options);
    }
  }
  if (!IsZip(name)) {
    const SafetensorsFile file(name);
    if (IsCheckpoint(file)) return FromCheckpoint(OpenCheckpoint(name, options.notify), options);
    return WithDescription({.path = path, .tensors = file.tensors()}, name, options);
  }
  return WithDescription({.path = path, .tensors = ReadStateDict(name)}, name, options);
}

NamedTensors TensorsFor(const ImageModel& model, const ModelFile& file) {
  std::map<std::string, at::Tensor> given(file.tensors.begin(), file.tensors.end());
  const bool of_transformers = given.contains("resnet.embedder.embedder.convolution.weight");
  if (of_transformers && fs::is_directory(file.path)) CheckTransformersConfig(file.path);
  for (const auto& [name, tensor] : StateDict(model)) {
    const std::string theirs = of_transformers ? TransformersName(name).value_or(name)
                                               : std::string(kWrapperPrefix) + name;
    if (auto entry = given.extract(theirs)) {
      entry.key() = name;
      given.insert(std::move(entry));
    }
  }
  if (file.averaged) TakeFirstNames(model, given);
  return {given.begin(), given.end()};
}

std::shared_ptr<ImageModel> MakeModelOf(const ModelFile& file, const Config& config,
                                        const ModelInput& input) {
  auto model = MakeModel(config.model, ModelOptionsOf(config, input));
  LoadTensors(*model, TensorsFor(*model, file), file.path);
  model->eval();
  return model;
}

}  // namespace ddprun
