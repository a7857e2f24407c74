// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/augment.h"

#include "rendezvous/base/random.h"

namespace ddprun {
namespace {

// Keeps an image's coin independent of the numbers that place images.
constexpr std::uint64_t kFlipStream = 0x666c6970;

}  // namespace

Placement RandomPlacement(const Draw& draw) {
  SplitMix64 random({draw.seed, draw.epoch, draw.position});
  const std::int64_t padding = draw.options.padding;
  const auto shifts = static_cast<std::uint32_t>(2 * padding + 1);
  Placement placement;
  placement.shift_y = static_cast<std::int64_t>(random.Below(shifts)) - padding;
  placement.shift_x = static_cast<std::int64_t>(random.Below(shifts)) - padding;
  placement.mirrored = Mirrored(draw, random.Below(2) == 1);
  return placement;
}

bool AlternatingFlip(const Draw& draw) {
  const bool at_first = SplitMix64({draw.seed, kFlipStream, draw.index}).Below(2) == 1;
  return at_first != (draw.epoch % 2 == 1);
}

bool Mirrored(const Draw& draw, bool coin) {
  switch (draw.options.flip) {
    case Flip::kRandom:
      return coin;
    case Flip::kAlternating:
      return AlternatingFlip(draw);
    case Flip::kOff:
      return false;
  }
  return false;
}

}  // namespace ddprun
