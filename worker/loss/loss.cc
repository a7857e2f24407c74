// SPDX-License-Identifier: Apache-2.0
#include "worker/loss/loss.h"

namespace ddprun {

Registry<LossFactory>& Losses() {
  static Registry<LossFactory> losses("--loss");
  return losses;
}

}  // namespace ddprun
