// SPDX-License-Identifier: Apache-2.0
// The commands of `train`, by the first word of the command line. A new command is a file of its
// own and a row in commands.cc.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "proto/worker_env.h"

namespace ddprun {

// What every command is told.
struct CommandContext {
  std::vector<std::string> arguments;  // after the command's name
  std::chrono::steady_clock::time_point program_start;
};

struct Command {
  std::string name;  // as typed; empty for the one that is meant where none is named
  std::string help;  // a line of `train --help`
  // Throws UsageError, std::invalid_argument (the program ends with 2) or another std::exception
  // with one sentence (it ends with 1).
  void (*run)(const CommandContext&);
};

const std::vector<Command>& Commands();

// The command that the first argument names, and the context without it; else the one without a
// name, with all arguments.
struct Invocation {
  const Command* command = nullptr;
  CommandContext context;
};
Invocation Invoke(const std::vector<std::string>& arguments,
                  std::chrono::steady_clock::time_point program_start);

// The worker's environment as FromProcessEnviron() reads it. Throws std::runtime_error with its
// sentence.
WorkerEnv Environment();

}  // namespace ddprun
