// SPDX-License-Identifier: Apache-2.0
#include "worker/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <utility>

#include "proto/version.h"
#include "worker/config_file.h"
#include "worker/dataset.h"
#include "worker/models.h"

namespace ddprun {
namespace {

// --batch_size=64 becomes --batch-size=64; what comes after the `=` is the user's.
std::string WithDashes(std::string argument) {
  if (argument.rfind("--", 0) != 0) return argument;
  const auto end =
      argument.begin() + static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size()));
  std::replace(argument.begin(), end, '_', '-');
  return argument;
}

std::string TypeName(const Setting& setting) {
  if (std::holds_alternative<std::string Config::*>(setting.member)) return "TEXT";
  return std::holds_alternative<double Config::*>(setting.member) ? "NUMBER" : "INTEGER";
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// What there is no way to know from the type of a setting.
std::vector<std::string> Choices(const std::string& key) {
  if (key == "model") return ModelNames();
  if (key == "dataset") return DatasetNames();
  if (key == "backend") return {"auto", "gloo", "nccl"};
  return {};
}

void CheckChoices(const Config& config) {
  for (const auto& setting : Settings()) {
    const std::vector<std::string> choices = Choices(setting.key);
    const std::string value = ToText(config, setting);
    if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end())
      continue;
    throw UsageError("--" + setting.key + " '" + value + "' is not known; choose one of " +
                     Joined(choices));
  }
}

std::string Help(const Setting& setting) {
  const std::vector<std::string> choices = Choices(setting.key);
  return choices.empty() ? setting.help : setting.help + " (" + Joined(choices) + ")";
}

// The texts are taken from the option after parsing: they go over the config file, which is read in
// between. Of an option given twice the last counts, so that a script can add to a command.
CLI::Option* AddSetting(CLI::App& app, const Setting& setting) {
  const std::string flag = "--" + setting.key;
  const std::string standard = ToText(Config{}, setting);
  CLI::Option* option = nullptr;
  if (std::holds_alternative<bool Config::*>(setting.member)) {
    const std::string help = Help(setting) + (standard == "true" ? " [on]" : " [off]");
    option = app.add_flag(flag + ",!--no-" + setting.key, help);
  } else {
    const std::string help = Help(setting);
    option = app.add_option(flag, help);
    option->type_name(TypeName(setting) + (standard.empty() ? "" : " [" + standard + "]"))
        ->expected(1);
  }
  return option->group(setting.group)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace

std::variant<Config, Information> ParseCommandLine(const std::vector<std::string>& arguments) {
  CLI::App app(
      "Trains a network on images, data-parallel over all ranks that ddprun, torchrun, srun or a "
      "person starts.\n"
      "A run of two on this machine: ddprun --standalone --nproc-per-node 2 train --dataset "
      "fashion-mnist",
      "train");
  app.get_formatter()->column_width(34);
  std::string config_file;
  bool version = false;
  std::vector<std::pair<const Setting*, CLI::Option*>> options;
  app.add_option("--config", config_file, "YAML file of settings; the command line goes over it")
      ->type_name("FILE");
  app.add_flag("--version", version, "print the version");
  for (const auto& setting : Settings()) options.emplace_back(&setting, AddSetting(app, setting));

  std::vector<std::string> reversed;  // as CLI11 wants them
  for (const auto& argument : arguments) reversed.insert(reversed.begin(), WithDashes(argument));
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return Information{app.help()};
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see train --help");
  }
  if (version) return Information{std::string("train (ddprun) ") + kSoftwareVersion + "\n"};

  Config config;
  if (!config_file.empty()) ReadConfigFile(config, config_file);
  for (const auto& [setting, option] : options) {
    if (option->count() > 0)
      SetFromText(config, *setting, option->results().back(), "--" + setting->key);
  }
  Validate(config);
  CheckChoices(config);
  return config;
}

}  // namespace ddprun
