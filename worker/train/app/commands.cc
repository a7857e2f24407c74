// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/commands.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/train/app/beside_train.h"

namespace ddprun {

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"", "train a model", RunTrain},
      {"eval", "measure a trained model's accuracy", RunEval},
      {"predict", "name the most probable classes of image files", RunPredict},
      {"export", "write a trained model for other programs", RunExport},
      {"check", "read every image of a data set, and name those that are damaged", RunCheck},
      {"compare", "two past runs; or train plain, data-parallel and as a pipeline", RunCompare},
      {"tune", "find a fast batch size, memory format and number of loader threads", RunTune},
      {"plot", "draw loss and accuracy of runs to a picture", RunPlot},
  };
  return commands;
}

Invocation Invoke(const std::vector<std::string>& arguments,
                  std::chrono::steady_clock::time_point program_start) {
  for (const Command& command : Commands()) {
    if (command.name.empty() || arguments.empty() || arguments[0] != command.name) continue;
    return {&command, {{arguments.begin() + 1, arguments.end()}, program_start}};
  }
  return {&Commands().front(), {arguments, program_start}};
}

WorkerEnv Environment() {
  auto env = FromProcessEnviron();
  if (!env.ok()) throw std::runtime_error(std::string(env.status().message()));
  return *std::move(env);
}

void RunPlot(const CommandContext& context) {
  std::string program = BesideTrain("ddprun-plot");
  std::vector<std::string> arguments = context.arguments;
  std::vector<char*> argv{program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw std::runtime_error(program + " cannot be run: " + std::strerror(errno) +
                           "; install it beside train");
}

}  // namespace ddprun
