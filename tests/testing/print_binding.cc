// SPDX-License-Identifier: Apache-2.0
// Prints what --numa-binding would bind, on the machine that hwloc is shown (HWLOC_FSROOT), so that
// a test can hold it against torch's answer for the same machine.
//   print_binding MODE WORKERS ALLOWED [SEATS]
// ALLOWED: CPUs as in 0-3,8. SEATS: the NUMA node of each GPU, with commas. One line a worker: CPUs
// and memory nodes; or "error: " and a sentence.
#include <cstdio>
#include <string>
#include <vector>

#include "launcher/base/int_ranges.h"
#include "launcher/options/options.h"
#include "launcher/placement/numa_binding.h"
#include "launcher/placement/topology.h"

namespace {

int Fail(const absl::Status& status) {
  std::printf("error: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using ddprun::NumaBinding;
  if (argc < 4) return 2;
  NumaBinding mode = NumaBinding::kNone;
  for (const NumaBinding one : {NumaBinding::kNode, NumaBinding::kSocket, NumaBinding::kExclusive,
                                NumaBinding::kCoreComplex}) {
    if (std::string(argv[1]) == ddprun::NumaBindingName(one)) mode = one;
  }
  const auto allowed = ddprun::ParseRanges(argv[3]);
  const auto seats = ddprun::ParseRanges(argc > 4 ? argv[4] : "");
  if (mode == NumaBinding::kNone || !allowed.has_value() || !seats.has_value()) return 2;
  const auto topology = ddprun::ReadTopology(*allowed);
  if (!topology.ok()) return Fail(topology.status());
  const auto bound = ddprun::BindWorkers(mode, *topology, std::stoi(argv[2]), *seats);
  if (!bound.ok()) return Fail(bound.status());
  for (const ddprun::BoundWorker& worker : *bound) {
    std::printf("%s %s\n", ddprun::RangesText(worker.cpus).c_str(),
                ddprun::RangesText(worker.nodes).c_str());
  }
  return 0;
}
