// SPDX-License-Identifier: Apache-2.0
// Binds a process to CPUs and to the memory near them. Created before the process exists, because
// the child must not allocate memory.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "launcher/placement/topology.h"

namespace ddprun {

// A call of set_mempolicy(), for a process that makes it itself.
struct MemoryPolicy {
  long system_call = 0;
  int policy = 0;
  unsigned long bits = 0;
  std::vector<unsigned long> mask;
};

class CpuBinding {
 public:
  // Binds nothing if both are empty.
  CpuBinding(const CpuSet& cpus, const std::vector<int>& memory_nodes);

  // Binds the calling thread and what it executes, by system calls. False, with errno: it cannot
  // run on these CPUs. Memory is preferred there and not demanded: a worker that needs more than
  // its node has uses that of the others instead of being killed. A container that does not
  // allow the call is no error either: the kernel prefers memory near the CPU anyway. A
  // memory policy that ddprun was started with (numactl --interleave) stays.
  bool Apply() const;

  // The memory policy that Apply() sets. Absent: none.
  std::optional<MemoryPolicy> memory_policy() const;

  // Binds all threads of a process that already runs; its memory stays where it is, and what it
  // allocates later is near its CPUs. False, with errno: it cannot run on these CPUs.
  bool ApplyTo(pid_t pid) const;

 private:
  bool SetsMemory() const;
  int Policy() const;
  unsigned long Bits() const;

  std::vector<unsigned long> cpu_mask_;
  std::vector<unsigned long> node_mask_;
  bool one_node_ = false;
};

}  // namespace ddprun
