// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <chrono>
#include <csignal>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/node/network.h"
#include "launcher/runs/run_folder.h"
#include "rendezvous/base/clock.h"

namespace ddprun {
int ShowRuns(const CtlOptions& options) {
  const absl::StatusOr<std::string> folder = RunsFolder(ReadVariable);
  const auto runs =
      folder.ok() ? ListRuns(*folder) : absl::StatusOr<std::vector<KnownRun>>(folder.status());
  if (!runs.ok()) return CtlFailed(runs.status());
  return Show(options.json ? RunsJson(*runs) : RunsText(*runs, std::time(nullptr)));
}

int StopDetached(const CtlOptions& options, const RunRecord& run) {
  if (run.host != HostName()) {
    return CtlFailed(absl::FailedPreconditionError(
        absl::StrCat("run ", run.name, " is on ", run.host,
                     " and has no service that can be asked; run ddpctl stop there")));
  }
  // Its recorder lives, as it holds the run's lock: the number is its own.
  kill(static_cast<pid_t>(run.pid), SIGTERM);
  // A second signal ends a run at once; one of the same number might not count as a second.
  if (options.now) kill(static_cast<pid_t>(run.pid), SIGINT);
  if (const int code = Show(absl::StrCat("stopping run ", run.name, "\n")); code != 0) return code;
  if (!options.wait) return 0;
  const absl::StatusOr<std::string> folder = RunsFolder(ReadVariable);
  if (!folder.ok()) return CtlFailed(folder.status());
  const std::string path = FolderOf(*folder, run.name);
  const TimePoint deadline = std::chrono::steady_clock::now() + options.wait_timeout;
  while (IsLive(path)) {
    if (std::chrono::steady_clock::now() >= deadline)
      return CtlFailed(absl::DeadlineExceededError(
          absl::StrCat("run ", run.name, " has not ended; ddpctl attach shows it")));
    poll(nullptr, 0, static_cast<int>(kRunFollowInterval.count()));
  }
  const absl::StatusOr<KnownRun> ended = ReadRun(path);
  if (!ended.ok()) return CtlFailed(ended.status());
  Show(absl::StrCat("run ", run.name, " has ended: ", StateText(*ended), "\n"));
  return ended->record.ending.has_value() ? ended->record.ending->exit_code : kExitFailure;
}

}  // namespace ddprun
