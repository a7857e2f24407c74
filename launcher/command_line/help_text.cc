// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/help_text.h"

#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "launcher/base/flag_names.h"
#include "launcher/command_line/parse_options.h"
#include "launcher/ctl/ctl_options.h"

namespace ddprun {
namespace {

constexpr char kUsage[] = "Usage: ddprun [FLAGS] PROGRAM [ARGUMENTS...]\n\n";

constexpr char kExamples[] =
    "  ddprun --standalone --nproc-per-node 2 train --epochs 1\n"
    "  ddprun -H node1:8,node2:8 train\n"
    "  ddprun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --nproc-per-node gpu train\n";

constexpr const char* kMostUsed[] = {
    "--nproc-per-node", "--standalone",    "--nnodes",  "--node-rank",
    "--master-addr",    "--rdzv-endpoint", "--rdzv-id", "--max-restarts",
    "--log-dir",        "--module",        "--config",  "--dry-run",
};

std::string ShortHelp(absl::Span<const FlagTopic> topics) {
  std::vector<Flag> most_used;
  for (const char* name : kMostUsed) {
    for (const FlagTopic& topic : topics) {
      for (const Flag& flag : topic.flags) {
        if (std::string(flag.name) == name) most_used.push_back(flag);
      }
    }
  }
  std::string text = absl::StrCat(kUsage, kAbout, "\n", "Most used:\n", FlagsHelp(most_used), "\n",
                                  "Topics (ddprun --help TOPIC, or all):\n");
  for (const FlagTopic& topic : topics)
    absl::StrAppend(&text, absl::StrFormat("  %-33s %s\n", topic.name, topic.title));
  absl::StrAppend(&text, "\nOther commands:\n");
  for (const SubCommand& command : SubCommands()) {
    absl::StrAppend(&text, absl::StrFormat("  ddprun %-26s %s\n", command.name, command.help));
  }
  return absl::StrCat(text, "\n", kSpelling, "\n", kExamples);
}

std::string FullHelp(absl::Span<const FlagTopic> topics) {
  std::string text = absl::StrCat(kUsage, kAbout, "\n");
  for (const FlagTopic& topic : topics)
    absl::StrAppend(&text, topic.title, ":\n", FlagsHelp(topic.flags), "\n");
  absl::StrAppend(&text, "General:\n", FlagsHelp(kGeneralFlags), "\n");
  return absl::StrCat(text, kSpelling, "\n", kExamples);
}

}  // namespace

const std::vector<Flag> kGeneralFlags = {
    {"--version", 0, nullptr, "Print the version."},
    {"--help", 'h', "[TOPIC]", "Print the most used flags, or all flags of a topic."},
};

const std::vector<SubCommand>& SubCommands() {
  static const std::vector<SubCommand> commands = {
      {CommandId::kStatus, "status", "show the runs of a rendezvous service (ddprun status --help)",
       StatusFlags()},
      {CommandId::kDoctor, "doctor", "check nodes and network before a run (ddprun doctor --help)",
       FlagsOfDoctor()},
  };
  return commands;
}

std::vector<std::string> ChoicesOf(const Flag& flag) {
  std::vector<std::string> choices;
  if (flag.value == nullptr || std::string(flag.value).find('|') == std::string::npos)
    return choices;
  for (absl::string_view word : absl::StrSplit(flag.value, '|')) {
    if (std::islower(static_cast<unsigned char>(word.front()))) choices.emplace_back(word);
  }
  return choices;
}

absl::StatusOr<std::string> HelpText(absl::Span<const FlagTopic> topics, const std::string& topic) {
  if (topic.empty()) return ShortHelp(topics);
  if (topic == "all") return FullHelp(topics);
  std::vector<std::string> names = {"all"};
  for (const FlagTopic& one : topics) {
    if (topic == one.name) return absl::StrCat(one.title, ":\n", FlagsHelp(one.flags));
    names.emplace_back(one.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no help on '", topic, "'",
                                                 DidYouMean(topic, names),
                                                 "; ddprun --help lists the topics"));
}

}  // namespace ddprun
