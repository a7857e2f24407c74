// SPDX-License-Identifier: Apache-2.0
#include "launcher/temp_dir.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr char kTemplate[] = "/ddprun-XXXXXX";
// The longest name that goes into the folder.
constexpr std::size_t kNameBytesMax = 32;

}  // namespace

absl::StatusOr<std::string> MakeTempDir() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  for (const std::string base : {runtime != nullptr ? runtime : "", "/tmp"}) {
    const bool fits =
        base.size() + sizeof(kTemplate) + kNameBytesMax < sizeof(sockaddr_un::sun_path);
    if (base.empty() || base[0] != '/' || !fits) continue;
    std::string path = base + kTemplate;
    if (mkdtemp(path.data()) != nullptr) return path;
  }
  return absl::UnavailableError(absl::StrCat(
      "cannot make a temporary folder in $XDG_RUNTIME_DIR or /tmp: ", std::strerror(errno),
      "; make one of them writable"));
}

absl::StatusOr<std::string> MakeLogDir() {
  const char* chosen = std::getenv("TMPDIR");
  std::string path = chosen != nullptr && chosen[0] == '/' ? chosen : "/tmp";
  path += "/ddprun-logs-XXXXXX";
  if (mkdtemp(path.data()) != nullptr) return path;
  return absl::UnavailableError(absl::StrCat("cannot make a folder for logs, ", path, ": ",
                                             std::strerror(errno), "; name one with --log-dir"));
}

absl::Status RestoreTempDir(const std::string& path) {
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return absl::UnavailableError(
        absl::StrCat("the run's folder ", path,
                     " was removed and cannot be made again: ", std::strerror(errno)));
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
      (info.st_mode & (S_IRWXG | S_IRWXO)) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("the run's folder ", path,
                   " was removed, and something else has its name; set XDG_RUNTIME_DIR to a folder "
                   "that no one else can write to"));
}

void RemoveTempDir(const std::string& path) {
  std::error_code ignored;
  if (!path.empty()) std::filesystem::remove_all(path, ignored);
}

}  // namespace ddprun
