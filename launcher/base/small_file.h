// SPDX-License-Identifier: Apache-2.0
// What the kernel says of the machine in files of /proc and /sys.
#pragma once

#include <string>

namespace ddprun {

// The first 4 KiB, which hold all of it; "" where it cannot be read.
std::string ReadSmallFile(const std::string& path);

}  // namespace ddprun
