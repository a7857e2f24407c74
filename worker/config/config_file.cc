// SPDX-License-Identifier: Apache-2.0
#include "worker/config/config_file.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "worker/config/setting_names.h"

namespace ddprun {
namespace {

std::string At(const std::string& path, const YAML::Mark& mark) {
  return path + ":" + std::to_string(mark.line + 1);
}

YAML::Node Load(const std::string& path) {
  if (std::filesystem::is_directory(path))
    throw UsageError(path + ": is a folder, not a file; check --config");
  std::ifstream file(path);
  if (!file) throw UsageError(path + ": " + std::strerror(errno) + "; check --config");
  try {
    return YAML::Load(file);
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

void ReadConfigFile(Config& config, const std::string& path) {
  const YAML::Node root = Load(path);
  if (root.IsNull()) return;
  if (!root.IsMap()) throw UsageError(path + ": must be a map of settings such as `lr: 0.01`");
  std::set<std::string> seen;
  for (const auto& entry : root) Apply(config, path, entry.first, entry.second, seen);
}

}  // namespace ddprun
