// SPDX-License-Identifier: Apache-2.0
// Resolves the file that the workers execute, before anything is started.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"

namespace ddprun {

struct Program {
  std::string path;
  std::vector<std::string> argv;
  bool is_python = false;  // `path` is a Python, which runs a script or module
};

// The arguments of the worker of that local rank: every ${local_rank} in them is its number, as
// under torchrun. Nothing else is touched; `$$` and other `${...}` stay as they are.
std::vector<std::string> ArgumentsOf(const Program& program, int local_rank);

// Finds the programs of --wrap in PATH, and checks that the ranks of --wrap and --stdin exist where
// these are known: in a run of one node, of `workers` workers. With more nodes a program need only
// be where the rank is, so one that is missing here stays a name. Errors as below, and
// INVALID_ARGUMENT.
absl::Status ResolveWraps(Options& options, int workers, const GetVariable& get_variable);

// Checks --wrap and --stdin: one sentence if a rank is beyond the `world_size` ranks; empty: none.
std::string MissingRank(const Options& options, int world_size);

// A bare name is searched in `own_folder` (the folder of ddprun) and then in PATH; one with a '/'
// is a path; a Python file (.py, .pyc, .pyz, or a folder with a __main__.py) and a module are run
// by PYTHON_EXEC, the Python of the virtual environment that `own_folder` is in, or python3 in
// PATH. NOT_FOUND (exit code 127) or PERMISSION_DENIED (126): one sentence for users.
absl::StatusOr<Program> ResolveProgram(const ProgramSection& section, const std::string& own_folder,
                                       const GetVariable& get_variable);

}  // namespace ddprun
