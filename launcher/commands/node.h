// SPDX-License-Identifier: Apache-2.0
// Shared by the commands that start a node: from a command line to a running node.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "launcher/command_line/parse_options.h"
#include "launcher/node/control_pipe.h"
#include "launcher/options/options.h"
#include "rendezvous/security/token.h"

namespace ddprun {

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

// The path of this ddprun.
std::filesystem::path OwnPath();

// Runs a node of a run, or of `ddprun doctor`, to its end and returns the exit code. Errors that
// can be detected beforehand are, before the first process starts.
int RunNode(Prepared prepared, std::optional<HeadConnection> head, absl::Span<char> command_line);

}  // namespace ddprun
