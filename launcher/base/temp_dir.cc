// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/temp_dir.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/security/token.h"

namespace ddprun {
namespace {

// The longest name that goes into the folder for sockets.
constexpr std::size_t kSocketNameBytesMax = 32;

// A new folder `template_name` in the first of `bases` that takes it. A base that is no whole path
// is skipped.
absl::StatusOr<std::string> MakeFolder(const std::vector<std::string>& bases,
                                       const std::string& template_name, std::size_t bytes_max,
                                       const char* purpose, const char* advice) {
  std::string reasons;
  for (const std::string& base : bases) {
    if (base.empty() || base[0] != '/') continue;
    std::string path = absl::StrCat(base, "/", template_name);
    const bool fits = path.size() < bytes_max;
    if (fits && mkdtemp(path.data()) != nullptr) return path;
    absl::StrAppend(&reasons, reasons.empty() ? "" : ", ", base, " (",
                    fits ? std::strerror(errno) : "too long for the path of a socket", ")");
  }
  return absl::UnavailableError(
      absl::StrCat("cannot make a folder for ", purpose, " in any of ", reasons, "; ", advice));
}

}  // namespace

// /tmp before TMPDIR, which may be a shared file system that has no sockets.
absl::StatusOr<std::string> MakeTempDir() {
  return MakeFolder({ReadVariable("XDG_RUNTIME_DIR").value_or(""), "/tmp",
                     ReadVariable("TMPDIR").value_or(""), "/var/tmp", "/dev/shm"},
                    "ddprun-XXXXXX", sizeof(sockaddr_un::sun_path) - kSocketNameBytesMax - 1,
                    "sockets", "set TMPDIR to a folder that can be written");
}

std::string MakeSharedDir() {
  std::string path = "/dev/shm/ddprun-XXXXXX";
  return mkdtemp(path.data()) != nullptr ? path : "";
}

absl::StatusOr<std::string> MakeLogDir() {
  return MakeFolder({ReadVariable("TMPDIR").value_or(""), "/tmp", "/var/tmp"}, "ddprun-logs-XXXXXX",
                    PATH_MAX, "logs", "name one with --log-dir");
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
  // rmdir() needs no descriptor, and none may be left.
  if (path.empty() || rmdir(path.c_str()) == 0) return;
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace ddprun
