// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ddprun {

enum class DeviceChoice { kAuto, kCpu, kCuda };

enum class BackendChoice { kAuto, kGloo, kNccl };

// How gradients travel between ranks.
enum class GradientFormat { kFull, kBFloat16, kHalf };

}  // namespace ddprun
