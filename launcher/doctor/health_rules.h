// SPDX-License-Identifier: Apache-2.0
// The checks of `ddprun health`, which --health-check builtin runs before a node joins and before
// each restart: is this machine fit for a round? Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/doctor/doctor_rules.h"
#include "launcher/placement/nvml.h"

namespace ddprun {

// A line of the kernel's log on a GPU's fault, "NVRM: Xid (PCI:0000:3b:00): 79, ...".
struct Xid {
  std::string pci;
  int number = 0;
  std::int64_t seconds_ago = 0;
  bool operator==(const Xid&) const = default;
};

struct FolderFacts {
  std::string path;
  std::string error;  // with which it cannot be looked at
  std::int64_t bytes = 0;
  std::int64_t bytes_free = 0;
  std::int64_t files = 0;  // of inodes; 0: the file system does not count them
  std::int64_t files_free = 0;
  bool read_only = false;
};

// A port of an RDMA device.
struct HcaPort {
  std::string device;  // "mlx5_0"
  std::string port;
  std::string state;     // "ACTIVE"
  std::string physical;  // "LinkUp"
};

struct HealthFacts {
  NvmlReport nvml;
  int gpu_devices = 0;    // in /dev
  std::vector<int> gpus;  // indices of those that the workers may use
  int gpus_in_use = 0;    // the first of these have a worker each; 0: all
  std::vector<Xid> xids;  // those of now and of before
  std::vector<FolderFacts> folders;
  std::int64_t unix_seconds = 0;
  std::vector<InterfaceFacts> interfaces;
  std::string nccl_socket_ifname;
  std::vector<HcaPort> ports;
  std::string nccl_ib_hca;
  bool without_ib = false;  // NCCL_IB_DISABLE
};

// `check`: one of kHealthCheckNames. FAILED_PRECONDITION: a sentence with what is wrong and the
// next move.
absl::Status JudgeHealth(absl::string_view check, const HealthFacts& facts);

// A GPU whose memory is in use although no worker runs: that of a worker that has ended is free a
// moment later.
bool GpuMemoryIsInUse(const HealthFacts& facts);

// The Xids in records of /dev/kmsg, without those from before the driver was loaded. `now`: on the
// clock of the records, in microseconds.
std::vector<Xid> XidsIn(absl::string_view records, std::int64_t now);

}  // namespace ddprun
