// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/output_checks.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "launcher/output/log_plan.h"
#include "proto/output_file.h"
#include "rendezvous/base/bounded_call.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kOutputCheckTimeout{3};

absl::Status CheckVerdictFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const absl::Status status = CheckOutput(path);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("cannot write the verdict file ", path, ": ",
                                                 status.message(),
                                                 "; name another one with --verdict-file"));
}

absl::Status CheckLogDir(const LogOptions& options) {
  if (options.log_dir.empty() || WantsNoFiles(options)) return absl::OkStatus();
  const auto wrong = [&](absl::string_view what, absl::string_view reason) {
    return absl::InvalidArgumentError(absl::StrCat("cannot ", what, " the log folder ",
                                                   options.log_dir, ": ", reason,
                                                   "; name another one with --log-dir"));
  };
  const absl::StatusOr<std::string> folder = FollowLinks(options.log_dir);
  if (!folder.ok()) return wrong("use", folder.status().message());
  std::error_code error;
  std::filesystem::create_directories(options.log_dir, error);
  if (error) return wrong("make", error.message());
  if (!std::filesystem::is_directory(options.log_dir, error))
    return wrong("use", std::strerror(ENOTDIR));
  if (access(options.log_dir.c_str(), W_OK | X_OK) != 0)
    return wrong("write to", std::strerror(errno));
  return absl::OkStatus();
}

}  // namespace

// If the disk does not answer in time, the later write reports what is wrong.
absl::Status CheckOutputs(const Options& options) {
  const auto checked = CallWithDeadline<absl::Status>(
      kOutputCheckTimeout, [verdict_file = options.verdict.file, logs = options.logs] {
        absl::Status status = CheckVerdictFile(verdict_file);
        status.Update(CheckLogDir(logs));
        return status;
      });
  return checked.value_or(absl::OkStatus());
}

}  // namespace ddprun
