// SPDX-License-Identifier: Apache-2.0
#include "worker/data/cache_folder.h"

#include <cstdlib>

namespace ddprun {

std::string DataCacheFolder() {
  if (const char* cache = std::getenv("DDPRUN_CACHE_DIR")) return std::string(cache) + "/data";
  if (const char* caches = std::getenv("XDG_CACHE_HOME")) {
    return std::string(caches) + "/ddprun/data";
  }
  const char* home = std::getenv("HOME");
  return std::string(home ? home : ".") + "/.cache/ddprun/data";
}

}  // namespace ddprun
