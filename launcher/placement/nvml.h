// SPDX-License-Identifier: Apache-2.0
// The health of this machine's GPUs, from NVIDIA's management library (NVML). It is opened by name
// where it is needed, and never linked. A call into a broken driver may hang for ever: ask in a
// process that may be killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

struct GpuHealth {
  int index = 0;  // as nvidia-smi counts
  std::string uuid;
  std::string pci;    // "0000:3b:00", as the kernel's log has it; empty: not known
  std::string error;  // with which the GPU did not answer; the rest is then unknown

  // Absent: the GPU has no such value, or this user may not see it.
  std::optional<std::uint64_t> memory_total;
  std::optional<std::uint64_t> memory_used;
  std::optional<std::uint64_t> ecc_errors;  // uncorrectable ones since the driver was loaded
  bool repair_pending = false;              // of its memory: the next reset does it
  bool repair_failed = false;
};

struct NvmlReport {
  std::string error;            // with which NVML did not start although a driver is there
  std::vector<GpuHealth> gpus;  // all that this process may see
};

// Nothing where there is no driver of NVIDIA's.
NvmlReport ReadNvml();

}  // namespace ddprun
