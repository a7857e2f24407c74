// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/paths.h"

namespace ddprun {

std::string SourcePath(const std::string& below) { return DDPRUN_SOURCE_DIR "/" + below; }
std::string BuildPath(const std::string& below) { return DDPRUN_BUILD_DIR "/" + below; }
std::string TestPython() { return DDPRUN_PYTHON; }
std::string TorchPythonPath() { return DDPRUN_TORCH_DIR "/.."; }

}  // namespace ddprun
