// SPDX-License-Identifier: Apache-2.0
// The Python files of this folder, which are written beside a model. CMake generates
// python_sources.cc.
#pragma once

namespace ddprun {

extern const char* const kConfigurationSource;  // configuration_ddprun.py
extern const char* const kModelingSource;       // modeling_ddprun.py

}  // namespace ddprun
