// SPDX-License-Identifier: Apache-2.0
// Flags about what of the machine each worker gets: CPUs, memory near them, GPUs. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/flags.h"

namespace ddprun {

enum class NumaBinding { kNone, kNode, kSocket, kExclusive, kCoreComplex };

// torchrun's word for it, as --numa-binding takes it.
const char* NumaBindingName(NumaBinding mode);

struct AffinityOptions {
  NumaBinding numa_binding = NumaBinding::kNone;
  std::vector<std::string> gpus;  // numbers and ids in the order of writing; empty: all there are
  int gpus_per_worker = 0;        // each worker sees so many of its own; 0: all see all
  bool virtual_local_rank = false;
};

extern const std::vector<Flag> kAffinityFlags;

AffinityOptions ReadAffinityOptions(Reader& reader);

}  // namespace ddprun
