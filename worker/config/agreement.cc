// SPDX-License-Identifier: Apache-2.0
#include "worker/config/agreement.h"

#include <algorithm>
#include <string_view>

namespace ddprun {
namespace {

struct Entry {
  std::string_view key;
  Agreement agreement;
};

// In the order of Settings(). Folders may differ, as hosts have different disks. What else only
// rank 0 uses is compared too: a second value is a mistake that nobody would notice.
constexpr Entry kEntries[] = {
    {"recipe", Agreement::kOwn},  // what it stands for is compared
    {"model", Agreement::kTraining},
    {"model-file", Agreement::kTraining},
    {"shared-blocks", Agreement::kTraining},
    {"stem", Agreement::kTraining},
    {"width", Agreement::kTraining},
    {"whiten-epochs", Agreement::kTraining},
    {"sync-batch-norm", Agreement::kTraining},
    {"init-from", Agreement::kTraining},
    {"dataset", Agreement::kTraining},
    {"data-dir", Agreement::kOwn},
    {"augment", Agreement::kTraining},
    {"crop-padding", Agreement::kTraining},
    {"padding-mode", Agreement::kTraining},
    {"flip", Agreement::kTraining},
    {"samples", Agreement::kTraining},
    {"input-size", Agreement::kTraining},
    {"num-classes", Agreement::kTraining},
    {"loader-threads", Agreement::kOwn},
    {"batch-size", Agreement::kTraining},
    {"epochs", Agreement::kTraining},
    {"max-steps", Agreement::kTraining},
    {"optimizer", Agreement::kTraining},
    {"lr", Agreement::kTraining},
    {"schedule", Agreement::kTraining},
    {"warmup-epochs", Agreement::kTraining},
    {"warmup-steps", Agreement::kTraining},
    {"step-epochs", Agreement::kTraining},
    {"step-gamma", Agreement::kTraining},
    {"momentum", Agreement::kTraining},
    {"weight-decay", Agreement::kTraining},
    {"nesterov", Agreement::kTraining},
    {"beta1", Agreement::kTraining},
    {"beta2", Agreement::kTraining},
    {"adam-eps", Agreement::kTraining},
    {"muon-momentum", Agreement::kTraining},
    {"head-lr", Agreement::kTraining},
    {"bias-lr", Agreement::kTraining},
    {"loss", Agreement::kTraining},
    {"label-smoothing", Agreement::kTraining},
    {"accumulate", Agreement::kTraining},
    {"clip-norm", Agreement::kTraining},
    {"ema-decay", Agreement::kTraining},
    {"amp", Agreement::kTraining},
    {"compress", Agreement::kTraining},
    {"channels-last", Agreement::kTraining},
    {"deterministic", Agreement::kRun},
    {"cuda-graph", Agreement::kRun},
    {"device-data", Agreement::kOwn},
    {"target-accuracy", Agreement::kTraining},
    {"eval-every", Agreement::kRun},
    {"seed", Agreement::kTraining},
    {"pipeline", Agreement::kTraining},
    {"micro-batches", Agreement::kTraining},
    {"pipeline-schedule", Agreement::kTraining},
    {"checkpoint-dir", Agreement::kOwn},  // whether checkpoints are saved is compared
    {"checkpoint-every", Agreement::kRun},
    {"checkpoint-seconds", Agreement::kRun},
    {"checkpoint-keep", Agreement::kRun},
    {"resume", Agreement::kTraining},
    {"output-dir", Agreement::kOwn},
    {"eval", Agreement::kRun},
    {"eval-batch-size", Agreement::kRun},
    {"tta", Agreement::kRun},
    {"log-every", Agreement::kOwn},
    {"log-samples", Agreement::kOwn},
    {"metrics", Agreement::kOwn},
    {"tensorboard", Agreement::kOwn},
    {"profile", Agreement::kRun},
    {"profile-first-step", Agreement::kRun},
    {"profile-steps", Agreement::kRun},
    {"device", Agreement::kOwn},  // what they come to is compared (AgreeOnBackend)
    {"backend", Agreement::kOwn},
    {"timeout", Agreement::kOwn},
    {"collective-timeout", Agreement::kOwn},
    {"world-size", Agreement::kOwn},  // checked against WORLD_SIZE
    {"env-file", Agreement::kOwn},
};

}  // namespace

Agreement AgreementOf(const Setting& setting) {
  const auto* const found =
      std::find_if(std::begin(kEntries), std::end(kEntries),
                   [&](const Entry& entry) { return entry.key == setting.key; });
  return found == std::end(kEntries) ? Agreement::kRun : found->agreement;
}

std::vector<std::string> AgreementKeys() {
  std::vector<std::string> keys;
  for (const Entry& entry : kEntries) keys.emplace_back(entry.key);
  return keys;
}

std::vector<std::pair<std::string, std::string>> SharedSettings(const Config& config) {
  std::vector<std::pair<std::string, std::string>> shared;
  for (const Setting& setting : Settings()) {
    if (AgreementOf(setting) != Agreement::kOwn)
      shared.emplace_back("--" + setting.key, ToText(config, setting));
  }
  return shared;
}

std::map<std::string, std::string> TrainingSettings(const Config& config) {
  std::map<std::string, std::string> settings;
  for (const Setting& setting : Settings()) {
    if (AgreementOf(setting) == Agreement::kTraining)
      settings[setting.key] = ToText(config, setting);
  }
  return settings;
}

}  // namespace ddprun
