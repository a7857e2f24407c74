// SPDX-License-Identifier: Apache-2.0
#include "worker/app/commands.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddprun {

void RunPlot(const CommandContext& context) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  std::string program = self.parent_path() / "ddprun-plot";
  std::vector<std::string> arguments = context.arguments;
  std::vector<char*> argv{program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw std::runtime_error(program + " cannot be run: " + std::strerror(errno) +
                           "; install it beside train");
}

}  // namespace ddprun
