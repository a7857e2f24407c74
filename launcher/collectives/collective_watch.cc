// SPDX-License-Identifier: Apache-2.0
#include "launcher/collectives/collective_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/output_file.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {

extern const char* const kCollectiveWatchSource;  // the text of collective_watch.py

namespace {

// Its value is read and removed by collective_watch.py.
constexpr char kWatchVariable[] = "DDPRUN_COLLECTIVE_WATCH";
constexpr absl::string_view kPythonPath = "PYTHONPATH=";

}  // namespace

void PrependPythonPath(const std::string& folder, std::vector<std::string>& environment) {
  const auto found = std::find_if(environment.begin(), environment.end(), [](const auto& entry) {
    return absl::StartsWith(entry, kPythonPath);
  });
  if (found == environment.end()) {
    environment.push_back(absl::StrCat(kPythonPath, folder));
  } else {
    *found = absl::StrCat(kPythonPath, folder, ":", found->substr(kPythonPath.size()));
  }
}

absl::Status WriteCollectiveWatch(const std::string& folder) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", ErrnoText(errno)));
  return WriteWholeFile(absl::StrCat(folder, "/", kSitecustomize), kCollectiveWatchSource);
}

void AddCollectiveWatch(const std::string& folder, std::vector<std::string>& environment) {
  environment.push_back(absl::StrCat(kWatchVariable, "=", folder));
  PrependPythonPath(folder, environment);
}

}  // namespace ddprun
