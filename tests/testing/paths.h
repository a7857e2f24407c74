// SPDX-License-Identifier: Apache-2.0
// Absolute paths of this build, for tests that start programs. Only paths.cc is compiled with them,
// so that all other objects are the same in every clone and ccache finds them.
#pragma once

#include <string>

namespace ddprun {

std::string SourcePath(const std::string& below);  // "tests/e2e": below the repository's root
std::string BuildPath(const std::string& below);   // "bin/ddprun": below the build folder

// Python with torch, numpy and pytest; empty if the build was configured without one.
std::string TestPython();
// The folder that holds the package torch; for PYTHONPATH.
std::string TorchPythonPath();

}  // namespace ddprun
