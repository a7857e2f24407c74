// SPDX-License-Identifier: Apache-2.0
// What a rank of Checkpoints remembers from one world to the next.
#pragma once

#include <string>

#include "ddprun/detail/training_position.h"
#include "worker/library/files/named_tensors.h"

namespace ddprun {

struct KeptState {
  TrainingPosition position;
  std::string training;  // the checkpoints' name for it, see checkpoint_folder.h
  NamedTensors tensors;  // after the step of `position`
};

}  // namespace ddprun
