// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ddprun {

// The two ways in which a worker speaks.
enum class OutputStream { kOut, kErr };

}  // namespace ddprun
