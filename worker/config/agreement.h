// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run must have alike, and what a checkpoint's training is told by. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/config/config.h"

namespace ddprun {

// What all ranks must share, by name and value: ("--lr", "0.01").
std::vector<std::pair<std::string, std::string>> SharedSettings(const Config& config);

// Settings of kTraining by their keys, as text.
std::map<std::string, std::string> TrainingSettings(const Config& config);

}  // namespace ddprun
