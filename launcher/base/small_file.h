// SPDX-License-Identifier: Apache-2.0
// Reads small files of /proc and /sys.
#pragma once

#include <string>

namespace ddprun {

// The first 4 KiB, which hold all of it; "" where it cannot be read.
std::string ReadSmallFile(const std::string& path);

// The first bytes of a larger file; "" where it cannot be read. A pipe is not waited for.
std::string ReadUpTo(const std::string& path, std::size_t bytes_max);

}  // namespace ddprun
