// SPDX-License-Identifier: Apache-2.0
// Found before a training, not after it: folders that its results cannot be written to.
#pragma once

#include <string>

namespace ddprun {

inline constexpr char kModelFileName[] = "cifar_net.pth";

// Makes the folder that `option` (--output-dir) names, if it is not there, and makes sure that it
// can be written to, so that a training does not end with nothing. Throws UsageError.
void PrepareFolder(const std::string& option, const std::string& path);

// Makes sure that nothing is in the place of the files that the results are written to. Throws
// UsageError.
void PrepareResults(const std::string& output_dir);

}  // namespace ddprun
