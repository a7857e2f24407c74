// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ddprun {

// Where deploy/fetch-data.sh puts data sets: data/ in DDPRUN_CACHE_DIR or in the user's cache
// folder.
std::string DataCacheFolder();

}  // namespace ddprun
