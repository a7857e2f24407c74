// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ddprun {

// Bytes that this process may still take before the machine or a memory limit of its control groups
// (v2) has none left. Pages of files that can be dropped count as taken in a control group.
std::int64_t AvailableMemory();

// The most bytes that this process has had in memory at once (VmHWM).
std::int64_t PeakMemory();

}  // namespace ddprun
