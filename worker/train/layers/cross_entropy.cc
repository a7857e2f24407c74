// SPDX-License-Identifier: Apache-2.0
// torch.nn.CrossEntropyLoss.
#include <ATen/ops/cross_entropy_loss.h>

#include "worker/train/layers/loss.h"

namespace ddprun {
namespace {

Loss MakeCrossEntropy(const LossOptions& options) {
  return [options](const at::Tensor& scores, const at::Tensor& labels) {
    return at::cross_entropy_loss(scores, labels, /*weight=*/{}, options.reduction,
                                  /*ignore_index=*/-100, options.label_smoothing);
  };
}

const bool kCrossEntropyAdded = Losses().Add("cross-entropy", MakeCrossEntropy);

}  // namespace
}  // namespace ddprun
