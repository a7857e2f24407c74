// SPDX-License-Identifier: Apache-2.0
// Lets Python workers that know nothing of ddprun report where they are among torch.distributed's
// collectives: collective_watch.py, which their Python imports before it runs the program.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddprun {

// Python imports a module of this name by itself, before it runs its program.
inline constexpr char kSitecustomize[] = "sitecustomize.py";

// `folder` comes first in the PYTHONPATH of `environment`.
void PrependPythonPath(const std::string& folder, std::vector<std::string>& environment);

// Writes the file into `folder`, which is made if it is missing. The error is a sentence.
absl::Status WriteCollectiveWatch(const std::string& folder);

// The variables of a worker that imports it from there. It removes them again.
void AddCollectiveWatch(const std::string& folder, std::vector<std::string>& environment);

}  // namespace ddprun
