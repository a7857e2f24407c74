// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ddprun {

// A worker's output streams.
enum class OutputStream { kOut, kErr };

}  // namespace ddprun
