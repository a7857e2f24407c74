// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ddprun {

// The sockets of the services of this user's runs of one node, which use no network: in the places
// where MakeTempDir() makes its folders. At most kLocalServicesMax.
std::vector<std::string> FindLocalServices();

}  // namespace ddprun
