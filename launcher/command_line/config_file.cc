// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/config_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/base/flag_names.h"
#include "launcher/options/run_flags.h"
#include "rendezvous/base/env_file.h"
#include "rendezvous/security/token.h"

namespace ddprun {
namespace {

// Not allowed in a file: --config would recurse, the others print something and exit.
bool IsForTheCommandLine(const std::string& flag) {
  return flag == "--config"_flag.text || flag == "--print-completion"_flag.text ||
         flag == "--print-man"_flag.text;
}

class ConfigReader {
 public:
  ConfigReader(const std::string& path, absl::Span<const Flag> flags)
      : path_(path), flags_(flags) {}

  absl::Status Read(const YAML::Node& root) {
    if (root.IsNull()) return absl::OkStatus();
    if (!root.IsMap()) return Wrong("is not a map; write lines of KEY: VALUE");
    for (const auto& entry : root) {
      if (!entry.first.IsScalar()) return Wrong("has a key that is not a word; write KEY: VALUE");
      const std::string key = WithDashes(entry.first.Scalar());
      if (std::find(seen_.begin(), seen_.end(), key) != seen_.end())
        return Wrong(absl::StrCat("has the key '", key, "' twice; leave one of them out"));
      seen_.push_back(key);
      absl::Status status = key == "program" ? ReadProgram(entry.second)
                            : key == "env"   ? ReadEnv(entry.second)
                                             : ReadFlag(key, entry.second);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  ConfigFile Take() { return std::move(file_); }

 private:
  absl::Status Wrong(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("the configuration file ", path_, " ", what));
  }

  absl::Status ReadProgram(const YAML::Node& node) {
    if (node.IsScalar() && node.Scalar().find(' ') == std::string::npos) {
      file_.program = {node.Scalar()};
      return absl::OkStatus();
    }
    if (!node.IsSequence())
      return Wrong("has a program that is not a list; write program: [NAME, ARGUMENT, ...]");
    for (const YAML::Node& word : node) {
      if (!word.IsScalar())
        return Wrong("has a word of the program that is no text; write program: [NAME, ...]");
      file_.program.push_back(word.Scalar());
    }
    return absl::OkStatus();
  }

  absl::Status ReadEnv(const YAML::Node& node) {
    if (!node.IsMap()) return Wrong("has an env that is not a map; write env: {NAME: VALUE}");
    for (const auto& entry : node) {
      if (!entry.first.IsScalar() || !entry.second.IsScalar())
        return Wrong("has a nested value in env; write env: {NAME: VALUE}");
      const std::string name = entry.first.Scalar();
      if (!IsVariableName(name)) {
        return Wrong(
            absl::StrCat("has '", name, "' in its env, which is not a valid name of a variable"));
      }
      if (name == kTokenVariable) {
        return Wrong(absl::StrCat("has ", kTokenVariable,
                                  " in its env, which may be read by others; give token-file"));
      }
      file_.env.emplace_back(name, entry.second.Scalar());
    }
    return absl::OkStatus();
  }

  absl::Status ReadFlag(const std::string& key, const YAML::Node& node) {
    std::vector<std::string> known = {"program", "env"};
    bool found = false;
    std::string flag_name;
    std::string separator = ",";
    for (const Flag& flag : flags_) {
      if (IsForTheCommandLine(flag.name)) continue;
      const std::string name = std::string(flag.name).substr(2);
      known.push_back(name);
      const std::string given = absl::StrCat("--", key);
      const bool is_alias =
          std::find(flag.aliases.begin(), flag.aliases.end(), given) != flag.aliases.end();
      if (name != key && !is_alias) continue;
      found = true;
      flag_name = flag.name;
      if (flag.repeats) separator = kRepeatSeparator;
    }
    if (!found) {
      return Wrong(absl::StrCat("has the unknown key '", key, "'", DidYouMean(key, known),
                                "; keys are flags without --, program and env"));
    }
    absl::StatusOr<std::string> text = TextOf(key, node, separator);
    if (!text.ok()) return text.status();
    file_.values[flag_name] = {*std::move(text), absl::StrCat(path_, ": ", key)};
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> TextOf(const std::string& key, const YAML::Node& node,
                                     const std::string& separator) const {
    if (node.IsScalar()) return node.Scalar();
    std::vector<std::string> parts;
    for (const auto& entry : node) {
      const YAML::Node& value = node.IsMap() ? entry.second : entry;
      if (!value.IsScalar() || (node.IsMap() && !entry.first.IsScalar()))
        return Wrong(absl::StrCat("has lists in lists under ", key));
      parts.push_back(node.IsMap() ? absl::StrCat(entry.first.Scalar(), "=", value.Scalar())
                                   : value.Scalar());
    }
    if (parts.empty()) return Wrong(absl::StrCat("has no value for ", key));
    return absl::StrJoin(parts, separator);
  }

  const std::string& path_;
  const absl::Span<const Flag> flags_;
  std::vector<std::string> seen_;
  ConfigFile file_;
};

}  // namespace

absl::StatusOr<ConfigFile> ParseConfigFile(const std::string& text, const std::string& path,
                                           absl::Span<const Flag> flags) {
  ConfigReader reader(path, flags);
  try {
    if (absl::Status status = reader.Read(YAML::Load(text)); !status.ok()) return status;
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("line ", error.mark.line + 1, " of the ",
                                                   "configuration file ", path,
                                                   " is not YAML: ", error.msg));
  }
  return reader.Take();
}

}  // namespace ddprun
