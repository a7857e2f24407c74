// SPDX-License-Identifier: Apache-2.0
// Nodes with nothing wrong with them, for tests that change one thing.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/doctor/doctor_rules.h"

namespace ddprun {

inline NodeFacts SoundNode(int number) {
  NodeFacts node;
  node.node = number;
  node.host = absl::StrCat("host", number);
  node.address = absl::StrCat("10.0.0.", number + 1);
  node.version = "1.0";
  node.interface = "eth0";
  node.interfaces = {{.name = "lo", .mtu = 65536, .up = true, .loopback = true},
                     {.name = "eth0", .mtu = 1500, .up = true}};
  node.default_routes = 1;
  node.name_address = node.address;
  node.nofile = 1024;
  node.nofile_hard = 524288;
  node.memlock = 8 << 20;
  node.shm_bytes = node.shm_free = std::int64_t{16} << 30;
  node.memory_free = std::int64_t{32} << 30;
  node.cpus = 8;
  node.workers = 2;
  node.kernel = "6.1.0";
  node.ptrace_scope = 1;
  node.cgroup = true;
  node.folder = "/work";
  return node;
}

inline Checkup SoundCheckup(int nodes) {
  Checkup checkup;
  checkup.nodes_wanted = nodes;
  checkup.timeout = std::chrono::seconds(10);
  for (int number = 0; number < nodes; ++number) checkup.nodes.push_back(SoundNode(number));
  for (int from = 0; from < nodes; ++from) {
    for (int to = 0; to < nodes; ++to) {
      if (from == to) continue;
      checkup.pairs.push_back({.from = from,
                               .to = to,
                               .error = {},
                               .rtt_seconds = 1e-4,
                               .skew_seconds = 1e-3,
                               .skew_uncertainty = 5e-5,
                               .bytes_per_second = to == (from + 1) % nodes ? 1e9 : 0});
    }
  }
  return checkup;
}

// The findings of one check that are not ok.
inline std::vector<Finding> Complaints(const Checkup& checkup) {
  std::vector<Finding> found;
  for (const Finding& finding : Diagnose(checkup)) {
    if (finding.health != Health::kOk) found.push_back(finding);
  }
  return found;
}

}  // namespace ddprun
