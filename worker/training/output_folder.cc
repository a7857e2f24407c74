// SPDX-License-Identifier: Apache-2.0
#include "worker/training/output_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "worker/config/config.h"
#include "worker/training/summary.h"

namespace ddprun {
namespace {

// A file is the only proof: access() knows nothing of full disks, quotas and servers' rights.
// Returns 0 or an errno.
int TryToWriteIn(const std::filesystem::path& folder) {
  const std::string probe = folder / (".ddprun-probe." + std::to_string(getpid()));
  const int fd = open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int error = write(fd, "\n", 1) == 1 ? 0 : errno;
  if (close(fd) != 0 && error == 0) error = errno;
  unlink(probe.c_str());
  return error;
}

}  // namespace

void PrepareFolder(const std::string& option, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw UsageError(option + " " + path + " cannot be made: " + error.message() +
                     "; choose another folder");
  if (const int reason = TryToWriteIn(path); reason != 0) {
    throw UsageError(option + " " + path + " cannot be written to: " + std::strerror(reason) +
                     "; change its permissions, make room or choose another folder");
  }
}

void PrepareResults(const std::string& output_dir) {
  for (const char* name : {kModelFileName, kSummaryFileName}) {
    const std::filesystem::path path = std::filesystem::path(output_dir) / name;
    std::error_code error;
    if (std::filesystem::is_directory(path, error))
      throw UsageError("--output-dir: " + path.string() +
                       ", which the results are written to, is a folder; remove it or choose "
                       "another --output-dir");
  }
}

}  // namespace ddprun
