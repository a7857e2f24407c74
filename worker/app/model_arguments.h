// SPDX-License-Identifier: Apache-2.0
// Arguments shared by `train eval` and `train export`: a model file, and settings that override
// those of its training.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/app/command_line.h"
#include "worker/config/config.h"
#include "worker/export/model_file.h"

namespace CLI {
class App;
}

namespace ddprun {

class ModelArguments {
 public:
  // Adds the model file, --no-ema and all settings to `app`, which must outlive this.
  explicit ModelArguments(CLI::App& app);

  // Reads the model file. Call after ParseWith(). Throws UsageError, or as ReadModelFile() does.
  void Open(const Notify& notify);

  // The settings of the command line and --config, without those of the model file. Valid before
  // Open().
  Config Given() const;

  const Config& config() const { return config_; }
  const ModelFile& file() const { return file_; }

 private:
  SettingFlags settings_;
  std::string path_;
  bool without_average_ = false;
  Config config_;
  ModelFile file_;
};

// "checkpoints/step-000000100.safetensors (step 100, moving average)".
std::string Describe(const ModelFile& file);

}  // namespace ddprun
