// SPDX-License-Identifier: Apache-2.0
// Which file the workers execute; resolved before anything starts.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"

namespace ddprun {

struct Program {
  std::string path;
  std::vector<std::string> argv;
};

// The arguments of the worker of that local rank: every ${local_rank} in them is its number, as
// under torchrun. Nothing else is touched; `$$` and other `${...}` stay as they are.
std::vector<std::string> ArgumentsOf(const Program& program, int local_rank);

// A bare name is looked for in `own_folder` (where ddprun itself is) and then in PATH; one with a
// '/' is a path; a Python file (.py, .pyc, .pyz, or a folder with a __main__.py) and a module are
// run by PYTHON_EXEC or python3. NOT_FOUND (exit code 127) or PERMISSION_DENIED (126): one sentence
// for people.
absl::StatusOr<Program> ResolveProgram(const Options& options, const std::string& own_folder,
                                       const GetVariable& get_variable);

}  // namespace ddprun
