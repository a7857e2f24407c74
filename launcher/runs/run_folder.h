// SPDX-License-Identifier: Apache-2.0
// The folders of this user's detached runs: $XDG_STATE_HOME/ddprun/runs/NAME, of mode 0700. In
// each: run.json (run_record.h), the output (output_record.h), token (the run's secret while it
// goes on, where it has one), reserve (room for the record of its end on a full disk), and lock,
// which the run's recorder holds for as long as it lives.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/runs/run_record.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// $XDG_STATE_HOME/ddprun/runs, else ~/.local/state/ddprun/runs. FAILED_PRECONDITION: one sentence.
absl::StatusOr<std::string> RunsFolder(const GetVariable& get_variable);

inline std::string FolderOf(const std::string& runs_folder, const std::string& name) {
  return runs_folder + "/" + name;
}
std::string TokenPath(const std::string& folder);

// A run's own folder and the lock in it, in the hands of its recorder.
class RunFolder {
 public:
  // Creates it, and removes those of the oldest past runs, so that kRunsKeptMax stay. UNAVAILABLE,
  // ALREADY_EXISTS: one sentence.
  static absl::StatusOr<RunFolder> Make(const std::string& runs_folder, const std::string& name);

  const std::string& path() const { return path_; }
  // Replaces run.json. UNAVAILABLE: one sentence.
  absl::Status Write(const RunRecord& record) const;
  // Gives room back on a full disk, so that the end of the run can be written.
  void FreeReserve() const;
  // For commands of this user about the run, until RemoveToken().
  absl::Status WriteToken(const Token& token) const;
  void RemoveToken() const;
  // Where the run does not come about.
  void Remove() const;
  // In a child: the lock stays with the recorder alone.
  void LeaveLock() { lock_.Reset(); }

 private:
  std::string path_;
  OwnedFd lock_;
};

// The newest first. A folder that another version or a full disk has left without a record that can
// be read is left out. UNAVAILABLE: the folder is there and cannot be read; one sentence.
absl::StatusOr<std::vector<KnownRun>> ListRuns(const std::string& runs_folder);

enum class RunChoice { kAny, kLive };
// The newest that `name` means; empty: the newest. With kLive one that goes on. NOT_FOUND: one
// sentence, which says what there is.
absl::StatusOr<KnownRun> FindRun(const std::string& runs_folder, const std::string& name,
                                 RunChoice choice);
// Whether its recorder is there; cheaper than ReadRun(). Of another host's run on a disk of the
// network it may not be known: it goes on until its record says how it ended.
bool IsLive(const std::string& folder);
// Its record now. NOT_FOUND: the folder was removed.
absl::StatusOr<KnownRun> ReadRun(const std::string& folder);

}  // namespace ddprun
