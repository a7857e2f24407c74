// SPDX-License-Identifier: Apache-2.0
// The programs in ddprun. SubCommands() (command_line/help_text.h) is the table of their names,
// from which help, completion and the manual page are generated; main() dispatches to them.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "launcher/command_line/parse_options.h"

namespace ddprun {

struct Invocation {
  std::vector<std::string> arguments;  // after the command's name
  absl::Span<char> command_line;       // the memory of argv, which is one piece
};

// Each returns the exit code.

// `ddprun PROGRAM` and `ddprun doctor`: one node, or with -H the head of a run.
int RunCommand(Invocation invocation, Purpose purpose);

// `ddprun --control-pipe`: a node that a head started; its orders come over stdin.
int NodeCommand(Invocation invocation);

}  // namespace ddprun
