// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ddprun {

// Version of the messages in ddprun.proto. An agent of another one is rejected, with both named.
inline constexpr unsigned kProtocolVersion = 5;

// Version of the programs, as `--version` prints it. CMakeLists.txt passes the project's version.
inline constexpr const char* kSoftwareVersion = DDPRUN_VERSION;

}  // namespace ddprun
