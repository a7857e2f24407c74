// SPDX-License-Identifier: Apache-2.0
// The names that users write for the values of an enum, in the order of its enumerators: here of
// those that libddprun has.
#pragma once

#include <string>
#include <vector>

#include "ddprun/detail/choices.h"

namespace ddprun {

using ChoiceNames = std::vector<std::string>;

inline ChoiceNames NamesOf(DeviceChoice) { return {"auto", "cpu", "cuda"}; }

inline ChoiceNames NamesOf(BackendChoice) { return {"auto", "gloo", "nccl"}; }

inline ChoiceNames NamesOf(GradientFormat) { return {"off", "bf16", "fp16"}; }

}  // namespace ddprun
