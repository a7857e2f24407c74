// SPDX-License-Identifier: Apache-2.0
// A path that a user named as an output, where AtomicFile takes its argument for a name of ours: it
// replaces a link. Either way it writes to a device, a FIFO or a stream of this process as it is.
#pragma once

#include <string>

namespace ddprun {

// Where the links of `path` lead: the file there is the one to replace. Throws std::runtime_error
// that names the path.
std::string UserPath(const std::string& path);

}  // namespace ddprun
