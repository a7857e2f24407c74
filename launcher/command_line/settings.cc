// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/settings.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "launcher/command_line/config_file.h"
#include "launcher/options/run_flags.h"
#include "rendezvous/base/env_file.h"

namespace ddprun {
namespace {

class Gatherer {
 public:
  Gatherer(absl::Span<const Flag> flags, Values values, const GetVariable& get_variable,
           const ReadFile& read_file)
      : flags_(flags), get_variable_(get_variable), read_file_(read_file) {
    settings_.values = std::move(values);
  }

  absl::StatusOr<Settings> Gather() {
    // An .env file may name the configuration file, and vice versa.
    AddVariables(flags_, get_variable_, settings_.values);
    if (absl::Status status = ReadEnvFile(); !status.ok()) return status;
    if (absl::Status status = ReadConfig(); !status.ok()) return status;
    if (absl::Status status = ReadEnvFile(); !status.ok()) return status;
    for (auto& [flag, value] : config_.values) settings_.values.try_emplace(flag, value);
    AddMaster("--master-addr"_flag, "MASTER_ADDR");
    AddMaster("--master-port"_flag, "MASTER_PORT");
    for (const auto& [name, value] : config_.env) SetVariable(name, value);
    settings_.program = std::move(config_.program);
    return std::move(settings_);
  }

 private:
  std::string FileOf(FlagName flag) const {
    for (const Values* values : {&settings_.values, &config_.values}) {
      const auto found = values->find(flag.text);
      if (found != values->end()) return found->second.text;
    }
    return "";
  }

  absl::Status ReadEnvFile() {
    const std::string path = FileOf("--env-file"_flag);
    if (path.empty() || env_file_read_) return absl::OkStatus();
    env_file_read_ = true;
    absl::StatusOr<std::string> text = read_file_(path);
    if (!text.ok()) return text.status();
    absl::StatusOr<EnvFile> file = ParseEnvFile(*text, path);
    Wipe(*text);
    if (!file.ok()) return file.status();
    if (!file->token.empty()) settings_.token_env_file = path;
    Wipe(file->token);
    for (const auto& [name, value] : file->variables) {
      if (name == "MASTER_ADDR" || name == "MASTER_PORT") {
        master_[name] = {get_variable_(name).value_or(value), absl::StrCat(name, " of ", path)};
      }
      SetVariable(name, value);
    }
    AddVariables(
        flags_,
        [&](const std::string& name) -> std::optional<std::string> { return OfFile(*file, name); },
        settings_.values);
    return absl::OkStatus();
  }

  static std::optional<std::string> OfFile(const EnvFile& file, const std::string& name) {
    for (const auto& [known, value] : file.variables) {
      if (known == name) return value;
    }
    return std::nullopt;
  }

  absl::Status ReadConfig() {
    const std::string path = FileOf("--config"_flag);
    if (path.empty()) return absl::OkStatus();
    absl::StatusOr<std::string> text = read_file_(path);
    if (!text.ok()) return text.status();
    absl::StatusOr<ConfigFile> config = ParseConfigFile(*text, path, flags_);
    if (!config.ok()) return config.status();
    config_ = *std::move(config);
    return absl::OkStatus();
  }

  void AddMaster(FlagName flag, const std::string& variable) {
    const auto found = master_.find(variable);
    if (found != master_.end()) settings_.values.try_emplace(flag.text, found->second);
  }

  // The environment overrides files, and the .env file overrides env: of the configuration file.
  void SetVariable(const std::string& name, const std::string& value) {
    if (get_variable_(name).has_value()) return;
    for (const auto& variable : settings_.variables) {
      if (variable.first == name) return;
    }
    settings_.variables.emplace_back(name, value);
  }

  const absl::Span<const Flag> flags_;
  const GetVariable& get_variable_;
  const ReadFile& read_file_;
  Settings settings_;
  ConfigFile config_;
  Values master_;  // by the variable's name
  bool env_file_read_ = false;
};

}  // namespace

absl::StatusOr<std::string> NoFiles(const std::string& path) {
  return absl::NotFoundError(absl::StrCat("there is no file ", path));
}

absl::StatusOr<Settings> GatherSettings(absl::Span<const Flag> flags, Values values,
                                        const GetVariable& get_variable,
                                        const ReadFile& read_file) {
  return Gatherer(flags, std::move(values), get_variable, read_file).Gather();
}

}  // namespace ddprun
