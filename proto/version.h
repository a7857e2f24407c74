// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ddprun {

// Of the messages in ddprun.proto. An agent of another version is rejected with both numbers named.
inline constexpr unsigned kProtocolVersion = 5;

// Of the programs, as `--version` prints it. CMakeLists.txt passes the project's version.
inline constexpr const char* kSoftwareVersion = DDPRUN_VERSION;

}  // namespace ddprun
