// SPDX-License-Identifier: Apache-2.0
// What the commands that start a node share: from a command line to a running node.
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

// DDPRUN_TOKEN, or what stands in its place; absent: it is not set.
using TokenVariable = std::optional<absl::StatusOr<Token>>;

// Where the head of the run started this node.
struct HeadConnection {
  ControlPipe control_pipe;
  std::string host;  // this node's name as the head knows it
  bool serve_at_any_port = false;
};

struct Prepared {
  Options options;
  TokenVariable token;
};

// Reads the command line and the files that it names, sets their variables, prints warnings. An
// int: everything is done
// (--help), or failed; it is the exit code.
std::variant<int, Prepared> Prepare(const std::vector<std::string>& arguments, TokenVariable token,
                                    Purpose purpose);

// The path of this ddprun.
std::filesystem::path OwnPath();

// A node of a run, until the run is over. Whatever can be found wrong beforehand is, before the
// first process starts.
int RunNode(Prepared prepared, std::optional<HeadConnection> head, absl::Span<char> command_line);

// A node of `ddprun doctor`. `nodes`: how many there should be; 0: as --nnodes says.
int RunDoctorNode(Prepared prepared, std::optional<HeadConnection> head, int nodes);

}  // namespace ddprun
