// SPDX-License-Identifier: Apache-2.0
// The programs in ddprun. SubCommands() (command_line/help_text.h) is the table of their names,
// from which help, completion and the manual page are generated; main() dispatches to them.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "launcher/command_line/parse_options.h"
#include "launcher/node/control_pipe.h"
#include "launcher/options/options.h"
#include "launcher/runs/run_report.h"
#include "rendezvous/security/token.h"

namespace ddprun {

struct Invocation {
  std::vector<std::string> arguments;  // after the command's name
  absl::Span<char> command_line;       // the memory of argv, which is one piece
};

// Each returns the exit code.

// `ddprun PROGRAM` and `ddprun doctor`: one node, or with -H the head of a run.
int RunCommand(Invocation invocation, Purpose purpose);

// `ddprun health`: whether this machine is fit for a round.
int HealthCommand(Invocation invocation);

// `ddprun simulate`: the goodput that a fleet would have.
int SimulateCommand(Invocation invocation);

// `ddprun --control-pipe`: a node that a head started; its orders come over stdin.
int NodeCommand(Invocation invocation);

// ---- Shared by the commands that start a node

// The value of DDPRUN_TOKEN, or its replacement; absent: not set.
using TokenVariable = std::optional<absl::StatusOr<Token>>;

// The connection to the head that started this node.
struct HeadConnection {
  ControlPipe control_pipe;
  std::string host;  // the head's name for this node
  bool serve_at_any_port = false;
};

struct Prepared {
  Options options;
  TokenVariable token;
};

// Reads the command line and the files that it names, sets their variables, prints warnings. An
// int is the exit code: nothing is left to do (--help), or an error was printed.
std::variant<int, Prepared> Prepare(const std::vector<std::string>& arguments, TokenVariable token,
                                    Purpose purpose);

// Runs a node of a run, or of `ddprun doctor`, to its end and returns the exit code. Errors that
// can be detected beforehand are, before the first process starts.
// `report`: to the recorder of a detached run.
int RunNode(Prepared prepared, std::optional<HeadConnection> head, absl::Span<char> command_line,
            RunReport report = {});

}  // namespace ddprun
