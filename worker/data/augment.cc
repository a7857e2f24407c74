// SPDX-License-Identifier: Apache-2.0
#include "worker/data/augment.h"

#include "worker/data/random.h"

namespace ddprun {

Placement RandomPlacement(const Draw& draw) {
  SplitMix64 random({draw.seed, draw.epoch, draw.position});
  constexpr auto kShifts = static_cast<std::uint32_t>(2 * kCropPadding + 1);
  Placement placement;
  placement.shift_y = static_cast<std::int64_t>(random.Below(kShifts)) - kCropPadding;
  placement.shift_x = static_cast<std::int64_t>(random.Below(kShifts)) - kCropPadding;
  placement.mirrored = random.Below(2) == 1;
  return placement;
}

}  // namespace ddprun
