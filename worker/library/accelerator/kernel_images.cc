// SPDX-License-Identifier: Apache-2.0
#include "worker/library/accelerator/kernel_images.h"

namespace ddprun {

const KernelImage* ImageFor(const KernelModule& module, int capability) {
  const KernelImage* best = nullptr;
  for (const KernelImage& image : module.images) {
    if (image.capability > capability) continue;
    if (!image.is_ptx && image.capability / 10 != capability / 10) continue;
    // Machine code first: PTX costs a compilation at each start.
    const bool better = best == nullptr || (best->is_ptx && !image.is_ptx) ||
                        (best->is_ptx == image.is_ptx && image.capability > best->capability);
    if (better) best = &image;
  }
  return best;
}

}  // namespace ddprun
