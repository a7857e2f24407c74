// SPDX-License-Identifier: Apache-2.0
// Flags about what of the machine each worker gets: CPUs, memory near them, GPUs. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/flags.h"
#include "launcher/placement/numa_binding.h"

namespace ddprun {

struct AffinityOptions {
  NumaBinding numa_binding = NumaBinding::kNone;
  std::vector<std::string> gpus;  // numbers and ids in the order of writing; empty: all there are
  int gpus_per_worker = 0;        // each worker sees so many of its own; 0: all see all
  bool virtual_local_rank = false;
};

extern const std::vector<Flag> kAffinityFlags;

AffinityOptions ReadAffinityOptions(Reader& reader);

}  // namespace ddprun
