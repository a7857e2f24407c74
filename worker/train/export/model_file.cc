// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/model_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "proto/json_text.h"
#include "worker/library/files/safetensors.h"
#include "worker/library/files/state_dict.h"
#include "worker/train/export/model_description.h"
#include "worker/train/export/run_folder.h"
#include "worker/train/export/transformers_names.h"
#include "worker/train/export/weight_files.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// The prefixes of a checkpoint's tensors (worker/library/checkpoint).
constexpr std::string_view kModelPrefix = "model/";

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

// A run's folder, or one of checkpoints.
ModelFile FromFolder(const std::string& path, const ModelFileOptions& options) {
  const RunModel run = FindRunModel(path, options.notify);
  if (run.checkpoint) return FromCheckpoint(*run.checkpoint, options);
  if (!run.file.empty()) return ReadModelFile(run.file, options);
  if (!ListCheckpoints(path).empty())
    return FromCheckpoint(OpenCheckpoint(path, options.notify), options);
  throw std::runtime_error("there is no model and no good checkpoint in " + path +
                           "; name the folder of a run, one of checkpoints or a file");
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
    throw std::runtime_error(path + ": " + key + " is " + JsonText(config[key]) +
                             ", but the models here need " + JsonText(needed));
  };
  require("downsample_in_first_stage", false);
  require("downsample_in_bottleneck", false);
  require("hidden_act", "relu");
}

// What wrappers put into the names of what they wrap: torch.compile(), FSDP and activation
// checkpoints anywhere; DistributedDataParallel, Lightning and SaveForTransformers() at the front.
constexpr std::array<std::string_view, 3> kInnerWrappers = {"_orig_mod.", "_fsdp_wrapped_module.",
                                                            "_checkpoint_wrapped_module."};
constexpr std::array<std::string_view, 2> kOuterWrappers = {"module.", "model."};

// The model's own name of the file's tensor `name`, which is returned as it is if it has none.
std::string OwnName(const std::string& name, const std::map<std::string, std::string>& own_names) {
  std::string rest = name;
  bool wrapped = true;
  while (wrapped) {
    if (const auto found = own_names.find(rest); found != own_names.end()) return found->second;
    wrapped = false;
    for (const std::string_view word : kInnerWrappers) {
      for (auto at = rest.find(word); at != std::string::npos; at = rest.find(word, at)) {
        rest.erase(at, word.size());
        wrapped = true;
      }
    }
    if (wrapped) continue;
    for (const std::string_view word : kOuterWrappers) {
      if (!rest.starts_with(word)) continue;
      rest.erase(0, word.size());
      wrapped = true;
      break;
    }
  }
  return name;
}

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
    name = WeightsIn(path);
    if (name.empty()) return FromFolder(path, options);
  }
  if (!IsTorchOrIndex(name)) {
    const SafetensorsFile file = OpenSafetensors(name);
    if (IsCheckpoint(file)) return FromCheckpoint(OpenCheckpoint(name, options.notify), options);
    return WithDescription({.path = path, .tensors = file.tensors()}, name, options);
  }
  return WithDescription({.path = path, .tensors = ReadWeights(name)}, name, options);
}

NamedTensors TensorsFor(const ImageModel& model, const ModelFile& file) {
  const bool of_transformers =
      std::any_of(file.tensors.begin(), file.tensors.end(), [](const auto& tensor) {
        return tensor.first.ends_with("resnet.embedder.embedder.convolution.weight");
      });
  if (of_transformers && fs::is_directory(file.path)) CheckTransformersConfig(file.path);
  const NamedTensors state = StateDict(model);
  std::map<std::string, std::string> own_names;  // by the names that the file may have
  for (const auto& [name, tensor] : state)
    own_names[of_transformers ? TransformersName(name).value_or(name) : name] = name;
  std::map<std::string, at::Tensor> given;
  for (const bool exact : {true, false}) {
    for (const auto& [name, tensor] : file.tensors) {
      if (own_names.contains(name) != exact) continue;
      // One whose name is taken stays in the file's words, for the error.
      if (!given.emplace(OwnName(name, own_names), tensor).second) given.emplace(name, tensor);
    }
  }
  if (file.averaged) TakeFirstNames(model, given);
  for (const auto& [name, tensor] : state) {
    // Counters that older versions of PyTorch did not write; no result depends on them.
    if (name.ends_with(".num_batches_tracked")) given.emplace(name, tensor);
  }
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
