// SPDX-License-Identifier: Apache-2.0
// A trained model, out of a checkpoint or a .pth file: its tensors, and what is known of how it was
// made and what it was trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint_folder.h"
#include "worker/config/config.h"
#include "worker/files/named_tensors.h"
#include "worker/models/models.h"

namespace ddprun {

// What a model was trained on, as far as its use depends on it.
struct ModelInput {
  std::int64_t channels = 3;
  std::int64_t height = 32;
  std::int64_t width = 32;
  std::int64_t classes = 10;
  std::vector<float> mean;  // of each channel, for values in [0, 1]
  std::vector<float> std;
  std::vector<std::string> class_names;  // empty: not known
};

ModelOptions ModelOptionsOf(const Config& config, const ModelInput& input);

struct ModelFile {
  std::string path;
  NamedTensors tensors;              // names as in StateDict(); on the CPU
  bool averaged = false;             // they are the moving average (EMA) of the training's
  std::optional<std::int64_t> step;  // of the training
  // Of a checkpoint, or of the description beside another file (model_description.h).
  std::optional<Config> config;
  std::optional<ModelInput> input;
};

struct ModelFileOptions {
  bool averaged = true;                       // the moving average, if the file has one
  Notify notify = [](const std::string&) {};  // of a folder: which checkpoints are damaged
};

// `path`: a checkpoint, a .pth or .safetensors file of names and tensors, a folder with a
// model.safetensors, or one of checkpoints, of which the newest good one is taken. Which it is the
// file itself says. Throws std::runtime_error with one sentence
// that names the path.
ModelFile ReadModelFile(const std::string& path, ModelFileOptions options);

// The file's tensors under the model's own names, where the file has those of transformers' ResNet
// or of an export for transformers; names that are not known stay as they are. Throws
// std::runtime_error if the ResNet is one that torchvision's names do not say.
NamedTensors TensorsFor(const ImageModel& model, const ModelFile& file);

// The model as `config` says, with the file's tensors, in evaluation mode on the CPU. Throws
// std::runtime_error that says what does not fit, std::invalid_argument as MakeModel() does.
std::shared_ptr<ImageModel> MakeModelOf(const ModelFile& file, const Config& config,
                                        const ModelInput& input);

}  // namespace ddprun
