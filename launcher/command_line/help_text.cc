// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/help_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/base/flag_names.h"
#include "launcher/command_line/parse_options.h"
#include "launcher/ctl/ctl_options.h"
#include "launcher/options/health_options.h"
#include "launcher/options/run_flags.h"
#include "launcher/simulate/simulate_options.h"

namespace ddprun {
namespace {

constexpr char kUsage[] = "Usage: ddprun [FLAGS] PROGRAM [ARGUMENTS...]\n\n";

constexpr char kExamples[] =
    "  ddprun --standalone --nproc-per-node 2 train --epochs 1\n"
    "  ddprun -H node1:8,node2:8 train\n"
    "  ddprun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --nproc-per-node gpu train\n";

constexpr FlagName kMostUsed[] = {
    "--nproc-per-node"_flag, "--standalone"_flag,    "--nnodes"_flag,  "--node-rank"_flag,
    "--master-addr"_flag,    "--rdzv-endpoint"_flag, "--rdzv-id"_flag, "--max-restarts"_flag,
    "--log-dir"_flag,        "--config"_flag,        "--dry-run"_flag,
};

std::string ShortHelp() {
  std::vector<Flag> most_used;
  const std::vector<Flag> all = AllFlags();
  for (const FlagName name : kMostUsed) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(most_used),
                 [&](const Flag& flag) { return flag.name == name.text; });
  }
  std::string text = absl::StrCat(kUsage, kAbout, "\n", "Most used:\n", FlagsHelp(most_used), "\n",
                                  "Topics (ddprun --help TOPIC, or all):\n");
  for (const FlagTopic& topic : kFlagTopics)
    absl::StrAppend(&text, absl::StrFormat("  %-33s %s\n", topic.name, topic.title));
  absl::StrAppend(&text, "\nOther commands:\n");
  for (const SubCommand& command : SubCommands()) {
    absl::StrAppend(&text, absl::StrFormat("  ddprun %-26s %s\n", command.name, command.help));
  }
  return absl::StrCat(text, "\n", kSpelling, kExamples);
}

std::string FullHelp() {
  std::string text = absl::StrCat(kUsage, kAbout, "\n");
  for (const FlagTopic& topic : kFlagTopics)
    absl::StrAppend(&text, topic.title, ":\n", FlagsHelp(FlagsIn(topic.flags)), "\n");
  absl::StrAppend(&text, "General:\n", FlagsHelp(kGeneralFlags), "\n");
  return absl::StrCat(text, kSpelling, "\n", kExamples);
}

}  // namespace

const std::vector<Flag> kGeneralFlags = FlagsIn(std::initializer_list<RunFlag>{
    {"--version", nullptr, "Print the version.", nullptr},
    {"--help", "[TOPIC]", "Print the most used flags, or all flags of a topic.", nullptr,
     Letter('h')},
});

const std::vector<SubCommand>& SubCommands() {
  static const std::vector<SubCommand> commands = {
      {CommandId::kStatus, "status", "show the runs of a rendezvous service (ddprun status --help)",
       StatusFlags()},
      {CommandId::kDoctor, "doctor", "check nodes and network before a run (ddprun doctor --help)",
       FlagsIn(kDoctorFlags, kRendezvousFlags, kHostFlags, kSecurityFlags<Options>)},
      {CommandId::kHealth, "health", "check whether this machine is fit (ddprun health --help)",
       HealthFlags()},
      {CommandId::kSimulate, "simulate", "forecast a fleet's goodput (ddprun simulate --help)",
       SimulateFlags()},
  };
  return commands;
}

absl::StatusOr<std::string> HelpText(const std::string& topic) {
  if (topic.empty()) return ShortHelp();
  if (topic == "all") return FullHelp();
  std::vector<std::string> names = {"all"};
  for (const FlagTopic& one : kFlagTopics) {
    if (topic == one.name) return absl::StrCat(one.title, ":\n", FlagsHelp(FlagsIn(one.flags)));
    names.emplace_back(one.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no help on '", topic, "'",
                                                 DidYouMean(topic, names),
                                                 "; ddprun --help lists the topics"));
}

std::string DoctorHelp() {
  return absl::StrCat(
      "Usage: ddprun doctor [FLAGS] [PROGRAM]\n\n"
      "Checks in seconds what usually goes wrong between the nodes of a run: run it on each node "
      "with the flags of\n"
      "the run, or once with -H. It starts nothing, and all nodes print the same. Without flags "
      "it looks at this\n"
      "machine alone. Exit codes: 0 (also with warnings); 1 if there is a FAIL; 2 for a wrong "
      "command line.\n\n",
      FlagsHelp(FlagsIn(kDoctorFlags)), "  -h, --help                        print this\n\n",
      "And all flags of a run (ddprun --help all), among them:\n",
      FlagsHelp(FlagsIn(kRendezvousFlags, kHostFlags, kSecurityFlags<Options>)),
      "\n  ddprun doctor --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 train\n"
      "  ddprun doctor -H node1:8,node2:8 train\n");
}

}  // namespace ddprun
