// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/keep_freed_memory.h"

#include <malloc.h>

#include <limits>

namespace ddprun {

void KeepFreedMemory() {
  // The largest M_MMAP_THRESHOLD is 32 MiB, and activations are larger.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace ddprun
