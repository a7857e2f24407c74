// SPDX-License-Identifier: Apache-2.0
#include "worker/train/config/config_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "proto/input_file.h"
#include "worker/train/config/setting_names.h"

namespace ddprun {
namespace {

constexpr std::size_t kConfigFileBytesMax = 1u << 20;

std::string At(const std::string& path, const YAML::Mark& mark) {
  return path + ":" + std::to_string(mark.line + 1);
}

YAML::Node Load(const std::string& path, const std::string& text) {
  try {
    return YAML::Load(text);
  } catch (const YAML::ParserException& error) {
    throw UsageError(At(path, error.mark) + ": is not YAML (" + error.msg + ")");
  } catch (const YAML::Exception& error) {
    throw UsageError(path + ": cannot be read as YAML (" + error.msg + "); check --config");
  }
}

void Apply(Config& config, const std::string& path, const YAML::Node& key_node,
           const YAML::Node& value, std::set<std::string>& seen) {
  const std::string where = At(path, key_node.Mark());
  if (!key_node.IsScalar()) throw UsageError(where + ": the name of a setting must be a word");
  const std::string& key = key_node.Scalar();
  const Setting* setting = FindSetting(key);
  if (!setting) {
    const std::string nearest = DidYouMean(key, SettingKeys(), "");
    throw UsageError(where + ": no setting is called '" + key + "'" +
                     (nearest.empty() ? "; see train --help" : nearest));
  }
  if (!seen.insert(setting->key).second)
    throw UsageError(where + ": " + key + " is set twice; keep one of them");
  if (!value.IsScalar())
    throw UsageError(where + ": " + key + ": must be one value, not a list, map or nothing");
  SetFromText(config, *setting, value.Scalar(), where + ": " + key);
}

}  // namespace

std::string ReadConfigText(const std::string& path) {
  absl::StatusOr<InputFile> file = ReadInput(path, kConfigFileBytesMax);
  if (!file.ok())
    throw UsageError(path + ": " + std::string(file.status().message()) + "; check --config");
  // Ranks share their launcher's stdin, and one pipe cannot be read by several of them.
  if (!file->is_regular && file->text.empty() && path != "/dev/null")
    throw UsageError(path +
                     ": nothing is in it, and it is a pipe or a device, which each rank has " +
                     "to read for itself; put the settings in a file");
  return std::move(file->text);
}

void ApplyConfigText(Config& config, const std::string& path, const std::string& text) {
  const YAML::Node root = Load(path, text);
  if (root.IsNull()) return;
  if (!root.IsMap()) throw UsageError(path + ": must be a map of settings such as `lr: 0.01`");
  std::set<std::string> seen;
  for (const auto& entry : root) Apply(config, path, entry.first, entry.second, seen);
}

namespace {

constexpr std::size_t kCommentColumn = 32;

// Whether another reader of YAML would take `text` for a text as well, and not for a truth value
// (YAML 1.1 has eleven words for those), a number, nothing or something with a structure.
bool IsPlainText(const std::string& text) {
  static const std::set<std::string> words = {"y",  "n",   "yes",  "no",   "true",
                                              "on", "off", "null", "false"};
  std::string lower;
  for (const unsigned char character : text) {
    if (!std::isalnum(character) &&
        std::string_view("._-/").find(static_cast<char>(character)) == std::string_view::npos)
      return false;
    lower.push_back(static_cast<char>(std::tolower(character)));
  }
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  return words.count(lower) == 0 && std::any_of(text.begin(), text.end(), is_letter) &&
         (is_letter(text.front()) || text.front() == '/');
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') quoted.push_back('\\');
    quoted.push_back(character);
  }
  return quoted + "\"";
}

std::string Line(const Config& config, const Setting& setting,
                 const std::vector<std::string>& choices) {
  std::string key = setting.key;
  std::replace(key.begin(), key.end(), '-', '_');
  const std::string value = ToText(config, setting);
  const bool is_text =
      !setting.choices.empty() || std::holds_alternative<std::string Config::*>(setting.member);
  std::string line = value.empty()
                         ? "# " + key + ":"
                         : key + ": " + (is_text && !IsPlainText(value) ? Quoted(value) : value);
  line.resize(std::max(kCommentColumn, line.size() + 1), ' ');
  line += "# " + setting.help;
  for (const std::string& choice : choices)
    line += (&choice == &choices.front() ? " (" : ", ") + choice;
  return line + (choices.empty() ? "\n" : ")\n");
}

}  // namespace

std::string ToConfigText(const Config& config,
                         const std::function<std::vector<std::string>(const Setting&)>& choices) {
  std::string text;
  std::string group;
  for (const Setting& setting : Settings()) {
    if (setting.group != group) text += (group.empty() ? "# " : "\n# ") + setting.group + "\n";
    group = setting.group;
    text += Line(config, setting, choices(setting));
  }
  return text;
}

}  // namespace ddprun
