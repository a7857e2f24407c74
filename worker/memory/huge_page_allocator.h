// SPDX-License-Identifier: Apache-2.0
// An allocator for the CPU tensors of a training, which are used again in every step. LibTorch's
// own allocator takes large tensors from the kernel and returns them at once, so each step's
// activations are 4 KiB pages that the kernel has to find, clear and map again: 29 000 page faults
// in a step of ResNet-18 with 16 images, a tenth of its time (tests/bench/RESULTS.md). Here they
// stay mapped, in huge pages where the kernel has some.
#pragma once

#include <cstddef>

namespace ddprun {

// Smaller ones stay with malloc, which keeps them too.
inline constexpr std::size_t kHugePageAllocationMin = std::size_t{64} << 10;
// What is taken from the kernel at once, at least.
inline constexpr std::size_t kHugePageSegmentBytes = std::size_t{64} << 20;

// From now on CPU tensors come from here; those that are there stay where they are. What is free is
// given back to the kernel only when other sizes are needed, so a program holds what it held at its
// peak. Also tells malloc to keep what LibTorch's kernels take from it for a moment. For the start
// of a program; a second call does nothing.
void UseHugePageAllocator();

struct HugePageUse {
  std::size_t taken_bytes = 0;   // by tensors that live
  std::size_t mapped_bytes = 0;  // from the kernel
};
HugePageUse GetHugePageUse();

}  // namespace ddprun
