// SPDX-License-Identifier: Apache-2.0
// The accelerators of this node that are not NVIDIA's, as the kernel shows them; no driver library
// is needed or woken up. `root`: the folder of /dev and /sys; "" for this machine.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/gpus.h"

namespace ddprun {

// AMD GPUs in the order of the KFD, which is that of HIP: the nodes of /sys/class/kfd with SIMDs
// whose render node may be opened. Empty without /dev/kfd.
std::vector<Gpu> ReadRocmGpus(const std::string& root);

struct XpuScope {
  bool integrated = false;  // GPUs of the processor count where there are no others
  bool tiles = true;        // each tile is a device, as Level Zero has it by default
};

// Intel GPUs in the order of the bus: render nodes in /dev/dri of the drivers xe and i915.
std::vector<Gpu> ReadXpus(const std::string& root, const XpuScope& scope);

// Ascend NPUs: /dev/davinci0 and so on. Their NUMA node is known where it is the same for all.
std::vector<Gpu> ReadNpus(const std::string& root);

// The names in a folder that do not begin with a dot, in order; empty: there is none.
std::vector<std::string> SortedEntries(const std::string& path);

// The number in "renderD128" behind "renderD"; -1: another name.
int NumberBehind(const std::string& prefix, const std::string& name);

// The NUMA node of a PCI device. 0 where the firmware does not say, as with a single node: there is
// a first one, as torchrun has it too.
int NodeOfPciDevice(const std::string& root, const std::string& address);

}  // namespace ddprun
