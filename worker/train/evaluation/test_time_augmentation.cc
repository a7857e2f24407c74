// SPDX-License-Identifier: Apache-2.0
#include "worker/train/evaluation/test_time_augmentation.h"

#include <ATen/ops/reflection_pad2d.h>

namespace ddprun {
namespace {

// Both ways round.
void AddMirrored(std::vector<WeightedView>& views, const at::Tensor& images, double weight) {
  views.push_back({images, weight / 2});
  views.push_back({images.flip({3}), weight / 2});
}

}  // namespace

std::vector<WeightedView> ViewsOf(const at::Tensor& images, TestTimeAugmentation views) {
  if (views == TestTimeAugmentation::kPlain) return {{images, 1}};
  std::vector<WeightedView> all;
  if (views == TestTimeAugmentation::kMirror) {
    AddMirrored(all, images, 1);
    return all;
  }
  AddMirrored(all, images, 0.5);
  const at::Tensor padded = at::reflection_pad2d(images, {1, 1, 1, 1});
  for (const std::int64_t corner : {0, 2}) {
    const at::Tensor shifted =
        padded.narrow(2, corner, images.size(2)).narrow(3, corner, images.size(3));
    AddMirrored(all, shifted.contiguous(images.suggest_memory_format()), 0.25);
  }
  return all;
}

}  // namespace ddprun
