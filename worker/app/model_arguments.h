// SPDX-License-Identifier: Apache-2.0
// Arguments shared by `train eval` and `train export`: a model file, and settings that override
// those that it was trained with.
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

  // After ParseWith(). Throws UsageError, or as ReadModelFile() does. Reads the file.
  void Open(const Notify& notify);

  // What the command line and --config say, without the model file's own settings; before Open().
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
