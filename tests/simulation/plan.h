// SPDX-License-Identifier: Apache-2.0
// What a seed means: a scenario, with everything that goes wrong in it. As text it replays the
// seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/scenario.h"

namespace ddprun {

std::vector<ScenarioLine> PlanOf(std::uint64_t seed);

std::string ToText(const std::vector<ScenarioLine>& plan);

}  // namespace ddprun
