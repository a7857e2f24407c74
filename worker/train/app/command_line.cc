// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "proto/output_file.h"
#include "proto/version.h"
#include "worker/train/app/commands.h"
#include "worker/train/config/config_file.h"
#include "worker/train/config/recipe.h"
#include "worker/train/config/setting_names.h"
#include "worker/train/data/dataset.h"
#include "worker/train/export/model_description.h"
#include "worker/train/layers/loss.h"
#include "worker/train/models/models.h"
#include "worker/train/optimizer/optimizer.h"

namespace ddprun {
namespace {

// --batch_size=64 becomes --batch-size=64; the value after `=` is kept.
std::string WithDashes(std::string argument) {
  if (argument.rfind("--", 0) != 0) return argument;
  const auto end =
      argument.begin() + static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size()));
  std::replace(argument.begin(), end, '_', '-');
  return argument;
}

std::string TypeName(const Setting& setting) {
  if (!setting.choices.empty() || std::holds_alternative<std::string Config::*>(setting.member))
    return "TEXT";
  return std::holds_alternative<double Config::*>(setting.member) ? "NUMBER" : "INTEGER";
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<std::string> Choices(const Setting& setting) {
  if (setting.key == "model") return Models().Names();
  if (setting.key == "dataset") return Datasets().Names();
  if (setting.key == "optimizer") return Optimizers().Names();
  if (setting.key == "loss") return Losses().Names();
  return setting.choices;
}

void CheckChoices(const Config& config) {
  for (const auto& setting : Settings()) {
    const std::vector<std::string> choices = Choices(setting);
    const std::string value = ToText(config, setting);
    const bool free = choices.empty() || value.empty();  // no recipe is a choice too
    if (free || std::find(choices.begin(), choices.end(), value) != choices.end()) continue;
    throw UsageError("--" + setting.key + " '" + value + "' is not known; choose one of " +
                     Joined(choices) + DidYouMean(value, choices, ""));
  }
}

// In other programs --model-name selects the network.
void CheckModelName(const Config& config) {
  const std::vector<std::string> models = Models().Names();
  const std::string& name = config.model_name;
  if (name == config.model || std::find(models.begin(), models.end(), name) == models.end()) return;
  throw UsageError("--model-name " + name + " would name the file of a --model " + config.model +
                   "; pass --model " + name + " for that network, or another --model-name");
}

std::string Help(const Setting& setting) {
  const std::vector<std::string> choices = Choices(setting);
  return choices.empty() ? setting.help : setting.help + " (" + Joined(choices) + ")";
}

// The values are read from the options after parsing, because they override the config file, which
// is read in between. The last occurrence of an option counts, so that a script can append to a
// command.
CLI::Option* AddSetting(CLI::App& app, const Setting& setting) {
  const std::string flag =
      "--" + setting.key + (setting.other_key.empty() ? "" : ",--" + setting.other_key);
  const std::string standard = ToText(Config{}, setting);
  CLI::Option* option = nullptr;
  if (IsSwitch(setting)) {
    const std::string initially = standard.empty() ? "" : standard == "true" ? " [on]" : " [off]";
    // const: CLI11 would take a non-const string for the variable that receives the flag's value.
    const std::string help = Help(setting) + initially;
    option = app.add_flag(flag + ",!--no-" + setting.key, help);
  } else {
    const std::string help = Help(setting);
    option = app.add_option(flag, help);
    option->type_name(TypeName(setting) + (standard.empty() ? "" : " [" + standard + "]"))
        ->expected(1);
  }
  return option->group(setting.group)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

// The sentence for an argument that no option takes.
std::string Unexpected(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining();
  const auto option = std::find_if(rest.begin(), rest.end(),
                                   [](const std::string& word) { return word.starts_with("--"); });
  const std::string see = "see " + app.get_name() + " --help";
  if (option == rest.end())
    return "the argument '" + (rest.empty() ? "" : rest.front()) + "' is not expected; " + see;
  const std::string name = option->substr(2, option->find('=') - 2);
  std::vector<std::string> known;
  for (const CLI::Option* each : app.get_options()) {
    for (const std::string& long_name : each->get_lnames()) known.push_back(long_name);
  }
  const std::string nearest = DidYouMean(name, known, "--");
  return "no option is called --" + name + (nearest.empty() ? "; " + see : nearest);
}

std::string OtherCommands() {
  std::string text;
  for (const Command& command : Commands()) {
    if (command.name.empty()) continue;
    text += (text.empty() ? "Other commands (see train COMMAND --help):\n" : "\n");
    text += "  " + command.name + std::string(12 - command.name.size(), ' ') + command.help;
  }
  return text;
}

}  // namespace

SettingFlags::SettingFlags(CLI::App& app) {
  app.get_formatter()->column_width(34);
  app.add_option("--config", config_file_, "YAML file of settings; the command line overrides it")
      ->type_name("FILE");
  for (const auto& setting : Settings()) options_.emplace_back(&setting, AddSetting(app, setting));
}

void SettingFlags::ShowOnly(const std::function<bool(const Setting&)>& shown) {
  for (const auto& [setting, option] : options_) {
    if (!shown(*setting)) option->group("");  // CLI11: no help for those
  }
}

// The file's settings override the recipe's, even if the file names the recipe.
std::string SettingFlags::Recipe(const std::string& config_text) const {
  for (const auto& [setting, option] : options_) {
    if (setting->key == "recipe" && option->count() > 0) return option->results().back();
  }
  Config file;
  if (!config_file_.empty()) ApplyConfigText(file, config_file_, config_text);
  return file.recipe;
}

void SettingFlags::Apply(Config& config, bool trained) const {
  // Cleared so that a name that is given can be told from the default, which other settings change.
  const std::string model = std::exchange(config.model, "");
  const std::string dataset = std::exchange(config.dataset, "");
  // Read once: a pipe can be read only once.
  const std::string config_text = config_file_.empty() ? "" : ReadConfigText(config_file_);
  ApplyRecipe(config, Recipe(config_text));
  if (!config_file_.empty()) ApplyConfigText(config, config_file_, config_text);
  for (const auto& [setting, option] : options_) {
    if (option->count() > 0)
      SetFromText(config, *setting, option->results().back(), "--" + setting->key);
  }
  if (config.model.empty())
    config.model = config.model_file.empty() || trained ? model : "torchscript";
  if (config.dataset.empty())
    config.dataset = config.model == "linear" && !trained ? "random" : dataset;
  Validate(config);
  CheckChoices(config);
  CheckModelName(config);
}

void CheckOutputFile(const std::string& option, const std::string& path) {
  const absl::Status status = CheckOutput(path);
  if (status.ok()) return;
  throw UsageError(option + " " + path + " cannot be written: " + std::string(status.message()) +
                   "; choose another file");
}

void ParseWith(CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed;  // the order that CLI11 expects
  for (const auto& argument : arguments) reversed.insert(reversed.begin(), WithDashes(argument));
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    throw Information{app.help()};
  } catch (const CLI::ExtrasError&) {
    throw UsageError(Unexpected(app));
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see " + app.get_name() + " --help");
  }
}

Config ParseCommandLine(const std::vector<std::string>& arguments) {
  CLI::App app(
      "Trains a network on images, data-parallel over all ranks that ddprun, torchrun, srun or a "
      "person starts.\n"
      "A run of two on this machine: ddprun --standalone --nproc-per-node 2 train --dataset "
      "fashion-mnist",
      "train");
  app.footer(OtherCommands());
  bool version = false;
  app.add_flag("--version", version, "print the version");
  bool print_config = false;
  app.add_flag("--print-config", print_config,
               "print all settings in the format of --config and exit");
  const SettingFlags settings(app);
  ParseWith(app, arguments);
  if (version) throw Information{std::string("train (ddprun) ") + kSoftwareVersion + "\n"};
  Config config;
  settings.Apply(config);
  if (print_config) throw Information{ToConfigText(config, Choices)};
  return config;
}

ModelArguments::ModelArguments(CLI::App& app, const std::vector<std::string>& more)
    : settings_(app) {
  settings_.ShowOnly([&more](const Setting& setting) {
    return DescribesModel(setting) ||
           std::find(more.begin(), more.end(), setting.key) != more.end();
  });
  app.footer("The other settings of `train` are accepted, too, and change nothing here.");
  app.add_option(
         "model", path_,
         "the folder of a run (its --output-dir), a folder of checkpoints, a checkpoint, or a .pth "
         "or .safetensors file; the last two need --model and the other settings of the model, "
         "unless PATH.json, which train writes beside its model, contains them")
      ->required()
      ->type_name("PATH");
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
