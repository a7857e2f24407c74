// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ddprun {

// Makes malloc keep freed memory instead of returning it to the kernel, and CPU tensors come from
// malloc. A step's tensors are used again in the next one, but by default malloc maps large ones
// anew each time, so that the kernel finds, clears and maps their 4 KiB pages again: an eighth of
// NetResDeep's processor time (tests/bench/RESULTS.md). From now on the process holds what it held
// at its peak. For the start of a program.
void KeepFreedMemory();

}  // namespace ddprun
