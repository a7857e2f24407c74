// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>

#include "ddprun/world.h"

namespace ddprun {

// The same future, or one that fails with RoundOver when the world ends.
c10::intrusive_ptr<c10::ivalue::Future> UntilRoundEnds(
    const World& world, const c10::intrusive_ptr<c10::ivalue::Future>& future);

}  // namespace ddprun
