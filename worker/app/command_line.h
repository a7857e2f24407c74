// SPDX-License-Identifier: Apache-2.0
// The command line of `train`. Its settings override those of the --config file, which override
// those of the recipe, which override the defaults.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "worker/config/config.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ddprun {

// --help or --version was asked for: print this and end with 0.
struct Information {
  std::string text;
};

// Every setting as a flag, for a command that has arguments of its own beside.
class SettingFlags {
 public:
  // Adds them, and --config, to `app`, which must outlive this.
  explicit SettingFlags(CLI::App& app);
  SettingFlags(const SettingFlags&) = delete;
  SettingFlags& operator=(const SettingFlags&) = delete;

  // After ParseWith(): sets what the recipe says, then the --config file, then the command line,
  // and validates all. --model-file implies --model torchscript, and --model linear --dataset
  // random, unless `config` is that of a model which has been trained. Throws UsageError.
  void Apply(Config& config, bool trained = false) const;

 private:
  std::string Recipe(const std::string& config_text) const;

  std::string config_file_;
  std::vector<std::pair<const Setting*, CLI::Option*>> options_;
};

// Makes sure that the file that `option` names can be written, as far as that is known before.
// Throws UsageError.
void CheckOutputFile(const std::string& option, const std::string& path);

// Parses a command's arguments as ParseCommandLine() does train's own: the help, if it was asked
// for. Throws UsageError.
std::optional<Information> ParseWith(CLI::App& app, const std::vector<std::string>& arguments);

// `arguments` without the program's name. Every option may be spelt with `-` or `_`, and may come
// as `--a b` or
// `--a=b`. Throws UsageError for whatever is not understood; the result has been validated.
std::variant<Config, Information> ParseCommandLine(const std::vector<std::string>& arguments);

}  // namespace ddprun
