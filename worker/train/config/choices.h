// SPDX-License-Identifier: Apache-2.0
// Settings that take one of a few values. NamesOf() gives the names that users write, in the order
// of the enumerators.
#pragma once

#include "worker/library/base/choice_names.h"

namespace ddprun {

// What lies around an image that is cut out of its padded self: bytes of zero, as black as the
// images' own background, or the image itself, mirrored at its outermost rows and columns.
enum class Padding { kZero, kReflect };
inline ChoiceNames NamesOf(Padding) { return {"zero", "reflect"}; }

enum class Flip {
  kRandom,       // a coin for each image in each epoch
  kAlternating,  // a coin for each image in the first epoch, then each time the other way round
  kOff,
};
inline ChoiceNames NamesOf(Flip) { return {"random", "alternating", "off"}; }

enum class ScheduleKind {
  kCosine,    // half a cosine down towards zero
  kStep,      // a constant factor after every so many steps (StepLR)
  kOneCycle,  // OneCycleLR of PyTorch: from peak/25 to the peak and down to peak/250 000, both as
              // half cosines
  kLinear,    // straight down towards zero
  kConstant,
};
inline ChoiceNames NamesOf(ScheduleKind) {
  return {"cosine", "step", "one-cycle", "linear", "constant"};
}

// Mixed precision. kAuto is bf16 on a GPU and off on a CPU, many of which take longer in it than in
// fp32. kFp16Pure is fp16 with a loss that is summed over the batch instead of scaled and checked.
enum class Amp { kOff, kAuto, kBf16, kFp16, kFp16Pure };
inline ChoiceNames NamesOf(Amp) { return {"off", "auto", "bf16", "fp16", "fp16-pure"}; }

// The order of a stage's actions (pipeline/actions.h).
enum class PipelineSchedule { kOneForwardOneBackward, kGpipe };
inline ChoiceNames NamesOf(PipelineSchedule) { return {"1f1b", "gpipe"}; }

enum class TestTimeAugmentation {
  kPlain,
  kMirror,           // the image and its mirror image, half and half
  kMirrorTranslate,  // half of that, and a quarter each for the same of the image shifted by a
                     // pixel up and left, and down and right: airbench's six views
};
inline ChoiceNames NamesOf(TestTimeAugmentation) { return {"off", "mirror", "mirror-translate"}; }

// By what evaluations are compared for the best model.
enum class KeepBest { kOff, kAccuracy, kLoss };
inline ChoiceNames NamesOf(KeepBest) { return {"off", "accuracy", "loss"}; }

}  // namespace ddprun
