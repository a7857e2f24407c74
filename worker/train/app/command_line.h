// SPDX-License-Identifier: Apache-2.0
// The command line of `train`. Its settings override those of the --config file, which override
// those of the recipe, which override the defaults.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/train/config/config.h"
#include "worker/train/export/model_file.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ddprun {

// The answer to --help, --version or --print-config: thrown, for main() to print before it ends
// with 0.
struct Information {
  std::string text;
};

// Every setting as a flag, for a command that also has arguments of its own.
class SettingFlags {
 public:
  // Adds them, and --config, to `app`, which must outlive this.
  explicit SettingFlags(CLI::App& app);
  SettingFlags(const SettingFlags&) = delete;
  SettingFlags& operator=(const SettingFlags&) = delete;

  // Call after ParseWith(). Applies the recipe, then the --config file, then the command line, and
  // validates the result. --model-file implies --model torchscript and --model linear implies
  // --dataset random, unless `config` is that of a trained model. Throws UsageError.
  void Apply(Config& config, bool trained = false) const;

  // Leaves all but the settings that `shown` takes out of the help. They are still accepted.
  void ShowOnly(const std::function<bool(const Setting&)>& shown);

 private:
  std::string Recipe(const std::string& config_text) const;

  std::string config_file_;
  std::vector<std::pair<const Setting*, CLI::Option*>> options_;
};

// Checks that the file that `option` names can be written, as far as that is known before anything
// is written. Throws UsageError.
void CheckOutputFile(const std::string& option, const std::string& path);

// Parses the arguments of a subcommand by the rules of ParseCommandLine(). Throws Information and
// UsageError.
void ParseWith(CLI::App& app, const std::vector<std::string>& arguments);

// `arguments` without the program's name. Every option may be spelt with `-` or `_`, and given as
// `--a b` or `--a=b`. Throws Information, and UsageError for an argument that is unknown or
// invalid; the result has been validated.
Config ParseCommandLine(const std::vector<std::string>& arguments);

class ModelArguments {
 public:
  // Adds the model file, --no-ema and all settings to `app`, which must outlive this. Its help
  // shows those settings that describe a model, and those of the keys `more`: others change
  // nothing.
  ModelArguments(CLI::App& app, const std::vector<std::string>& more);

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
