// SPDX-License-Identifier: Apache-2.0
// A trained model read from a checkpoint or a .pth file: its tensors, and, if known, the settings
// and images of its training.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/library/checkpoint/checkpoint_folder.h"
#include "worker/library/files/named_tensors.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/models/models.h"

namespace ddprun {

// Before the names of the weights' moving average in a checkpoint.
inline constexpr std::string_view kAveragePrefix = "ema/";

// The images that a model was trained on, as far as its use depends on them.
struct ModelInput {
  std::int64_t channels = 3;
  std::int64_t height = 32;
  std::int64_t width = 32;
  std::int64_t classes = 10;
  std::vector<float> mean;  // of each channel, for values in [0, 1]
  std::vector<float> std;
  std::vector<std::string> class_names;  // empty: not known
};

ModelInput InputOf(const Dataset& data);

ModelOptions ModelOptionsOf(const Config& config, const ModelInput& input);

struct ModelFile {
  std::string path;
  NamedTensors tensors;              // names as in StateDict(); on the CPU
  bool averaged = false;             // the tensors are the moving average (EMA) of the weights
  std::optional<std::int64_t> step;  // of the training
  // From a checkpoint, or from the description beside another file (model_description.h).
  std::optional<Config> config;
  std::optional<ModelInput> input;
};

struct ModelFileOptions {
  bool averaged = true;                       // the moving average, if the file has one
  Notify notify = [](const std::string&) {};  // receives sentences about damaged checkpoints
};

// `path`: a checkpoint, a .pth or .safetensors file, a folder with a file of weights or its parts
// (weight_files.h), a folder of checkpoints, of which the newest undamaged one is read, or
// a run's folder (run_folder.h). The kind is detected by content. Throws std::runtime_error with
// one sentence that names the path.
ModelFile ReadModelFile(const std::string& path, ModelFileOptions options);

// The file's tensors under the model's own names: names of transformers' ResNet are translated, and
// what wrappers such as DistributedDataParallel put before a name is dropped; unknown names are
// kept. A num_batches_tracked that is not in the file is the model's own. Throws std::runtime_error
// for a variant of ResNet that torchvision does not have.
NamedTensors TensorsFor(const ImageModel& model, const ModelFile& file);

// The model of `config` with the file's tensors, in evaluation mode on the CPU. Throws
// std::runtime_error that names the tensors that do not fit, std::invalid_argument as MakeModel().
std::shared_ptr<ImageModel> MakeModelOf(const ModelFile& file, const Config& config,
                                        const ModelInput& input);

}  // namespace ddprun
