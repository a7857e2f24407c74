// SPDX-License-Identifier: Apache-2.0
// --help by topic, shell completion and the manual page, all generated from the flag tables. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/flags.h"

namespace ddprun {

// What ddprun does, in lines of at most 120 columns.
inline constexpr char kAbout[] =
    "Starts PROGRAM as the workers of a distributed run, monitors them on every node, and exits "
    "with the exit code\nof the first worker that failed. PROGRAM is `train` or another program "
    "beside ddprun or in PATH, a path,\na .py file, or with -m a Python module.\n";

inline constexpr char kSpelling[] =
    "Flags accept _ for -. A variable PET_<NAME>, such as PET_NNODES, sets the default of a "
    "flag.\n";

// The flags of no topic.
extern const std::vector<Flag> kGeneralFlags;

enum class CommandId { kStatus, kDoctor, kHealth, kSimulate };

// `ddprun NAME ...`, which starts no program.
struct SubCommand {
  CommandId id;
  const char* name;
  const char* help;
  std::vector<Flag> flags;
};

// To add a command, add a row here and its case in main.cc; help, completion and the manual page
// use this table.
const std::vector<SubCommand>& SubCommands();

// `topic`: empty for a screen of the most used flags, "all", or the name of a topic.
// INVALID_ARGUMENT: no such topic.
absl::StatusOr<std::string> HelpText(const std::string& topic);
std::string DoctorHelp();

// `shell`: bash, zsh, fish or tcsh. INVALID_ARGUMENT: any other shell.
absl::StatusOr<std::string> CompletionScript(const std::string& shell);

// ddprun(1), for man.
std::string ManPage();

}  // namespace ddprun
