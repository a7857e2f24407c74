// SPDX-License-Identifier: Apache-2.0
#include "launcher/local_services.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "launcher/limits.h"

namespace ddprun {

std::vector<std::string> FindLocalServices() {
  std::vector<std::string> found;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  for (const std::string base : {runtime != nullptr ? runtime : "", "/tmp"}) {
    std::error_code error;
    if (base.empty()) continue;
    for (auto it = std::filesystem::directory_iterator(base, error);
         !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
      if (!absl::StartsWith(it->path().filename().string(), "ddprun-")) continue;
      const std::string path = (it->path() / "service.sock").string();
      struct stat about {};
      if (lstat(path.c_str(), &about) != 0) continue;
      if (S_ISSOCK(about.st_mode) && about.st_uid == geteuid()) found.push_back(path);
      if (found.size() == kLocalServicesMax) return found;
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace ddprun
