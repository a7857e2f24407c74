// SPDX-License-Identifier: Apache-2.0
// For each setting: must all ranks of a run share it, and is it part of what defines the training?
// Every setting of the table in config.cc has a row here. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/config/config.h"

namespace ddprun {

enum class Agreement {
  kTraining,  // the same on all ranks, and part of what a training is: after a restart, checkpoints
              // with another value are another training's
  kRun,       // the same on all ranks: they would wait for each other in vain, or do different work
  kOwn,       // each rank may have its own
};

// kRun for a setting that the table does not know, which a test finds.
Agreement AgreementOf(const Setting& setting);

// The settings that agreement.cc lists, in its order.
std::vector<std::string> AgreementKeys();

// What all ranks must share, by name and value: ("--lr", "0.01").
std::vector<std::pair<std::string, std::string>> SharedSettings(const Config& config);

// Settings of kTraining by their keys, as text.
std::map<std::string, std::string> TrainingSettings(const Config& config);

}  // namespace ddprun
