// SPDX-License-Identifier: Apache-2.0
// The commands of `train`, by the first word of the command line. A new command is a file of its
// own and a row in commands.cc.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "proto/worker_env.h"

namespace ddprun {

struct CommandContext {
  std::vector<std::string> arguments;  // after the command's name
  std::chrono::steady_clock::time_point program_start;
  // Ends the program as if `error` had been thrown, and destroys nothing. Does not return.
  void (*end_at_once)(std::exception_ptr error) = nullptr;
};

struct Command {
  std::string name;  // as typed; empty: the default command
  std::string help;  // a line of `train --help`
  // Throws Information (the program prints it and ends with 0), UsageError, std::invalid_argument
  // (the program ends with 2) or another std::exception with one sentence (it ends with 1).
  void (*run)(const CommandContext&);
};

const std::vector<Command>& Commands();

// `train`: trains a model as one rank.
void RunTrain(const CommandContext& context);
// `train eval`: accuracy and loss of a trained model on the test images.
void RunEval(const CommandContext& context);
// `train predict`: the most probable classes of image files.
void RunPredict(const CommandContext& context);
// `train export`: a trained model in a format of another program.
void RunExport(const CommandContext& context);
// `train check`: whether all images of a data set can be read.
void RunCheck(const CommandContext& context);
// `train compare`: the same work plain, data-parallel and as a pipeline, and a table of the three;
// or two trainings that have ended.
void RunCompare(const CommandContext& context);
// `train tune`: tries batch sizes, memory formats and numbers of loader threads on this machine,
// and prints the command with the best.
void RunTune(const CommandContext& context);
// `train plot`: executes ddprun-plot, which is installed beside train. Returns only by
// std::runtime_error: the program is missing.
void RunPlot(const CommandContext& context);

// The command that the first argument names, and the context without that argument; or the default
// command with all arguments.
struct Invocation {
  const Command* command = nullptr;
  CommandContext context;
};
Invocation Invoke(const std::vector<std::string>& arguments,
                  std::chrono::steady_clock::time_point program_start);

// The worker's environment as FromProcessEnviron() reads it. Throws its error as
// std::runtime_error.
WorkerEnv Environment();

}  // namespace ddprun
