// SPDX-License-Identifier: Apache-2.0
// The programs in ddprun, each in a file of its own. SubCommands() (command_line/help_text.h) is
// their table: names, help, completion and the manual page come from it, and main() runs what it
// names.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace ddprun {

struct Invocation {
  std::vector<std::string> arguments;  // after the command's name
  absl::Span<char> command_line;       // the memory of argv, which is one piece
};

// Each returns the exit code.

// `ddprun PROGRAM`: one node of a run, or with -H the head of one.
int RunCommand(Invocation invocation);

// `ddprun doctor`.
int DoctorCommand(Invocation invocation);

// `ddprun --control-pipe`: a node that a head started; its stdin says what to do.
int NodeCommand(Invocation invocation);

}  // namespace ddprun
