// SPDX-License-Identifier: Apache-2.0
#include "worker/app/model_arguments.h"

#include <CLI/CLI.hpp>

namespace ddprun {

ModelArguments::ModelArguments(CLI::App& app) : settings_(app) {
  app.add_option(
         "model", path_,
         "a checkpoint, a folder of checkpoints, or a .pth or .safetensors file; the last "
         "two need --model and the other settings of the model, unless FILE.json, which train "
         "writes beside its model, contains them")
      ->required()
      ->type_name("FILE");
  app.add_flag("--no-ema", without_average_,
               "use the weights themselves instead of their moving average");
}

void ModelArguments::Open(const Notify& notify) {
  file_ = ReadModelFile(path_, {.averaged = !without_average_, .notify = notify});
  if (file_.config) config_ = *file_.config;
  settings_.Apply(config_, /*trained=*/file_.config.has_value());
}

Config ModelArguments::Given() const {
  Config config;
  settings_.Apply(config);
  return config;
}

std::string Describe(const ModelFile& file) {
  if (!file.step) return file.path;
  return file.path + " (step " + std::to_string(*file.step) +
         (file.averaged ? ", moving average)" : ")");
}

}  // namespace ddprun
