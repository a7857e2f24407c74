// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_groups.h"

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

constexpr double kTimeoutSecondsMax = 3600;

}  // namespace

const std::vector<Flag> kDoctorFlags = {
    {"--timeout", 0, "SECONDS", "Time to wait for the other nodes (10)."},
    {"--json", 0, nullptr, "Print JSON."},
    {"--python", 0, "PROGRAM", "Also check the versions of torch and NCCL in this Python."},
};

DoctorOptions ReadDoctorOptions(Reader& reader) {
  DoctorOptions options;
  options.timeout = reader.Seconds("--timeout", kTimeoutSecondsMax).value_or(kDoctorTimeoutDefault);
  options.json = reader.Switch("--json");
  options.python = reader.Text("--python", "a program", "");
  return options;
}

std::string DoctorHelp(const std::vector<Flag>& flags) {
  return absl::StrCat(
      "Usage: ddprun doctor [FLAGS] [PROGRAM]\n\n"
      "Checks in seconds what usually goes wrong between the nodes of a run: run it on each node "
      "with the flags of\n"
      "the run, or once with -H. It starts nothing, and all nodes print the same. Without flags "
      "it looks at this\n"
      "machine alone. Exit codes: 0 (also with warnings); 1 if there is a FAIL; 2 for a wrong "
      "command line.\n\n",
      FlagsHelp(kDoctorFlags), "  -h, --help                        print this\n\n",
      "And all flags of a run (ddprun --help all), among them:\n", FlagsHelp(flags),
      "\n  ddprun doctor --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 train\n"
      "  ddprun doctor -H node1:8,node2:8 train\n");
}

}  // namespace ddprun
