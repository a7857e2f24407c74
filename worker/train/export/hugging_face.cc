// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/hugging_face.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "proto/json_text.h"
#include "worker/library/files/atomic_file.h"
#include "worker/library/files/safetensors.h"
#include "worker/library/files/state_dict.h"
#include "worker/train/datasets/image_folder.h"
#include "worker/train/export/python_sources.h"
#include "worker/train/export/transformers_names.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int kBilinear = 2;  // PIL.Image.Resampling

// Fields of transformers' ResNetConfig.
struct Architecture {
  const char* layer_type;
  std::vector<int> hidden_sizes;
  std::vector<int> depths;
};

const std::map<std::string, Architecture>& Architectures() {
  static const std::map<std::string, Architecture> table = {
      {"resnet18", {"basic", {64, 128, 256, 512}, {2, 2, 2, 2}}},
      {"resnet34", {"basic", {64, 128, 256, 512}, {3, 4, 6, 3}}},
      {"resnet50", {"bottleneck", {256, 512, 1024, 2048}, {3, 4, 6, 3}}},
  };
  return table;
}

void AddLabels(Json& json, const ModelInput& input) {
  for (std::int64_t i = 0; i < input.classes; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::string name =
        at < input.class_names.size() ? input.class_names[at] : "LABEL_" + std::to_string(i);
    json["id2label"][std::to_string(i)] = name;
    json["label2id"][name] = i;
  }
}

Json ResNetConfig(const Architecture& architecture, const ModelInput& input) {
  Json json{{"architectures", {"ResNetForImageClassification"}},
            {"model_type", "resnet"},
            {"dtype", "float32"},
            {"num_channels", input.channels},
            {"embedding_size", 64},
            {"layer_type", architecture.layer_type},
            {"hidden_sizes", architecture.hidden_sizes},
            {"depths", architecture.depths},
            {"hidden_act", "relu"},
            {"downsample_in_first_stage", false},
            {"downsample_in_bottleneck", false}};
  AddLabels(json, input);
  return json;
}

Json OwnConfig(const Config& config, const ModelInput& input) {
  Json json{{"architectures", {"DdprunForImageClassification"}},
            {"model_type", "ddprun"},
            {"auto_map",
             {{"AutoConfig", "configuration_ddprun.DdprunConfig"},
              {"AutoModelForImageClassification", "modeling_ddprun.DdprunForImageClassification"}}},
            {"dtype", "float32"},
            {"model_name", config.model},
            {"shared_blocks", config.shared_blocks},
            {"width", config.width},
            {"num_channels", input.channels},
            {"image_height", input.height},
            {"image_width", input.width}};
  AddLabels(json, input);
  return json;
}

// The preprocessing of evaluation: photographs (imagefolder) are resized, and their middle is cut
// out; images of a fixed size are used as they are. (ConvNextImageProcessor, which transformers'
// own ResNets have, cuts nothing out from 384 pixels on, and squashes the image instead.)
Json Preprocessor(const Config& config, const ModelInput& input) {
  const bool photographs = config.dataset == "imagefolder";
  const Json sides{{"height", input.height}, {"width", input.width}};
  Json json{{"image_processor_type", photographs ? "BitImageProcessor" : "ViTImageProcessor"},
            {"do_resize", true},
            {"resample", kBilinear},
            {"do_rescale", true},
            {"rescale_factor", 1.0 / 255},
            {"do_normalize", true},
            {"image_mean", input.mean},
            {"image_std", input.std}};
  if (photographs) {
    json["size"] = {{"shortest_edge", EvaluationShorterSide(input.height)}};
    json["do_center_crop"] = true;
    json["crop_size"] = sides;
    json["do_convert_rgb"] = true;
  } else {
    json["size"] = sides;
  }
  return json;
}

void MakeFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw std::runtime_error(folder + " cannot be made: " + error.message() +
                             "; choose another --output");
}

}  // namespace

void RequirePythonClass(const std::string& model) {
  const std::string_view source = kModelingSource;
  const auto table = source.find("\nMODELS = {");
  if (table != std::string_view::npos &&
      source.find("\n    \"" + model + "\": ", table) != std::string_view::npos)
    return;
  throw std::invalid_argument(
      "--format hf needs a Python class of the model, and worker/train/export/modeling_ddprun.py "
      "has "
      "none of --model " +
      model + "; add one there, or choose --format torchscript or pth");
}

std::string SaveForTransformers(const ImageModel& model, const Config& config,
                                const ModelInput& input, const std::string& folder) {
  MakeFolder(folder);
  const auto architecture = Architectures().find(config.model);
  const bool standard = config.stem == "imagenet" && architecture != Architectures().end();
  NamedTensors tensors;
  for (const auto& [name, tensor] : StateDict(model))
    tensors.emplace_back(standard ? TransformersName(name).value() : "model." + name, tensor);
  const fs::path path(folder);
  WriteSafetensors(path / "model.safetensors", tensors, {{"format", "pt"}});
  if (!standard) {
    WriteFile(path / "configuration_ddprun.py", kConfigurationSource);
    WriteFile(path / "modeling_ddprun.py", kModelingSource);
  }
  if (config.dataset != "random")  // its samples are rows of features, not images
    WriteFile(path / "preprocessor_config.json", JsonText(Preprocessor(config, input), 2) + "\n");
  const Json json = standard ? ResNetConfig(architecture->second, input) : OwnConfig(config, input);
  WriteFile(path / "config.json", JsonText(json, 2) + "\n");
  return "AutoModelForImageClassification.from_pretrained(\"" + folder + "\"" +
         (standard ? ")" : ", trust_remote_code=True)");
}

}  // namespace ddprun
