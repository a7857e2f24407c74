// SPDX-License-Identifier: Apache-2.0
#include "worker/config/agreement.h"

namespace ddprun {

std::vector<std::pair<std::string, std::string>> SharedSettings(const Config& config) {
  std::vector<std::pair<std::string, std::string>> shared;
  for (const Setting& setting : Settings()) {
    if (setting.agreement != Agreement::kOwn)
      shared.emplace_back("--" + setting.key, ToText(config, setting));
  }
  return shared;
}

std::map<std::string, std::string> TrainingSettings(const Config& config) {
  std::map<std::string, std::string> settings;
  for (const Setting& setting : Settings()) {
    if (setting.agreement == Agreement::kTraining) settings[setting.key] = ToText(config, setting);
  }
  return settings;
}

}  // namespace ddprun
