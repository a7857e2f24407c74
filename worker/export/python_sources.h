// SPDX-License-Identifier: Apache-2.0
// The Python files of this folder, as they are written beside a model; python_sources.cc is made
// by CMake.
#pragma once

namespace ddprun {

extern const char* const kConfigurationSource;  // configuration_ddprun.py
extern const char* const kModelingSource;       // modeling_ddprun.py

}  // namespace ddprun
