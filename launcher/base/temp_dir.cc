// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/temp_dir.h"

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

// Of a variable that names a folder by its whole path; "" otherwise.
std::string FolderIn(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] == '/' ? value : "";
}

bool FitsSocket(const std::string& base) {
  return base.size() + sizeof(kTemplate) + kNameBytesMax < sizeof(sockaddr_un::sun_path);
}

}  // namespace

// /tmp before TMPDIR, which may be a shared file system that has no sockets.
absl::StatusOr<std::string> MakeTempDir() {
  std::string reasons;
  for (const std::string& base :
       {FolderIn("XDG_RUNTIME_DIR"), std::string("/tmp"), FolderIn("TMPDIR"),
        std::string("/var/tmp"), std::string("/dev/shm")}) {
    if (base.empty()) continue;
    std::string path = base + kTemplate;
    const bool fits = FitsSocket(base);
    if (fits && mkdtemp(path.data()) != nullptr) return path;
    absl::StrAppend(&reasons, reasons.empty() ? "" : ", ", base, " (",
                    fits ? std::strerror(errno) : "too long for the path of a socket", ")");
  }
  return absl::UnavailableError(absl::StrCat("cannot make a folder for sockets in any of ", reasons,
                                             "; set TMPDIR to a folder that can be written"));
}

absl::StatusOr<std::string> MakeLogDir() {
  std::string reasons;
  for (const std::string& base :
       {FolderIn("TMPDIR"), std::string("/tmp"), std::string("/var/tmp")}) {
    if (base.empty()) continue;
    std::string path = base + "/ddprun-logs-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) return path;
    absl::StrAppend(&reasons, reasons.empty() ? "" : ", ", base, " (", std::strerror(errno), ")");
  }
  return absl::UnavailableError(absl::StrCat("cannot make a folder for logs in any of ", reasons,
                                             "; name one with --log-dir"));
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
  // An empty one without a descriptor, of which there may be none left.
  if (path.empty() || rmdir(path.c_str()) == 0) return;
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace ddprun
