// SPDX-License-Identifier: Apache-2.0
// --help by topic, shell completion and the manual page, all made from the flag tables. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "launcher/base/flags.h"

namespace ddprun {

// The flags of one subject, as --help shows them.
struct FlagTopic {
  const char* name;   // one word
  const char* title;  // a heading
  const std::vector<Flag>& flags;
};

enum class CommandId { kStatus, kDoctor };

// `ddprun NAME ...`, which starts no program.
struct SubCommand {
  CommandId id;
  const char* name;
  const char* help;
  std::vector<Flag> flags;
};

// A row here, and its case in main.cc, add a command: help, completion and the manual page have it
// then.
const std::vector<SubCommand>& SubCommands();

// The value's words where it is one of a few ("N|auto|gpu|cpu": auto, gpu, cpu); empty: anything.
std::vector<std::string> ChoicesOf(const Flag& flag);

// `topic`: empty for a screen of what is most used, "all", or the name of one. INVALID_ARGUMENT:
// there is none of that name.
absl::StatusOr<std::string> HelpText(absl::Span<const FlagTopic> topics, const std::string& topic);

// `shell`: bash, zsh, fish or tcsh. INVALID_ARGUMENT: another one.
absl::StatusOr<std::string> CompletionScript(absl::Span<const FlagTopic> topics,
                                             const std::string& shell);

// ddprun(1), for man.
std::string ManPage(absl::Span<const FlagTopic> topics);

}  // namespace ddprun
