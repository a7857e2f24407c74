// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/run_folder.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/node/network.h"
#include "proto/input_file.h"
#include "proto/output_file.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {
namespace {

std::string RecordPath(const std::string& folder) { return folder + "/run.json"; }
std::string ReservePath(const std::string& folder) { return folder + "/reserve"; }
std::string LockPath(const std::string& folder) { return folder + "/lock"; }

// Homes of clusters are there. A lock that another host holds may not be seen then: NFS with
// nolock, Lustre with localflock.
bool IsOnNetwork(int fd) {
  constexpr std::uint32_t kLustre = 0x0BD00BD0;
  constexpr std::uint32_t kGpfs = 0x47504653;
  constexpr std::uint32_t kBeegfs = 0x19830326;
  constexpr std::uint32_t kCifs = 0xFF534D42;
  constexpr std::uint32_t kSmb2 = 0xFE534D42;
  struct statfs about {};
  if (fstatfs(fd, &about) != 0) return false;
  switch (static_cast<std::uint32_t>(about.f_type)) {
    case NFS_SUPER_MAGIC:
    case CEPH_SUPER_MAGIC:
    case AFS_SUPER_MAGIC:
    case V9FS_MAGIC:
    case FUSE_SUPER_MAGIC:  // sshfs, and others
    case kLustre:
    case kGpfs:
    case kBeegfs:
    case kCifs:
    case kSmb2:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<RunRecord> ReadRecord(const std::string& folder) {
  const auto text = ReadRegularFile(RecordPath(folder), kRunRecordBytesMax);
  if (!text.ok()) {
    return absl::NotFoundError(
        absl::StrCat("cannot read ", RecordPath(folder), ": ", text.status().message()));
  }
  absl::StatusOr<RunRecord> record = ParseRunRecord(*text);
  if (!record.ok()) {
    return absl::NotFoundError(
        absl::StrCat("cannot read ", RecordPath(folder),
                     ", which another version may have written: ", record.status().message()));
  }
  return record;
}

absl::Status CannotMake(const std::string& path, absl::string_view reason) {
  return absl::UnavailableError(
      absl::StrCat("cannot make the folder of the run, ", path, ": ", reason,
                   "; XDG_STATE_HOME names another place than ~/.local/state"));
}

void Prune(const std::string& runs_folder) {
  const auto runs = ListRuns(runs_folder);
  if (!runs.ok()) return;
  std::size_t kept = 1;  // that of the new run
  for (const KnownRun& run : *runs) {
    if (run.live || ++kept <= kRunsKeptMax) continue;
    std::error_code error;
    std::filesystem::remove_all(FolderOf(runs_folder, run.record.name), error);
  }
}

}  // namespace

absl::StatusOr<std::string> RunsFolder(const GetVariable& get_variable) {
  const std::string state = get_variable("XDG_STATE_HOME").value_or("");
  // A relative path is invalid, says the specification, and is to be ignored.
  if (!state.empty() && state.front() == '/') return state + "/ddprun/runs";
  const std::string home = get_variable("HOME").value_or("");
  if (!home.empty()) return home + "/.local/state/ddprun/runs";
  return absl::FailedPreconditionError(
      "a detached run needs a folder for its output, and neither HOME nor XDG_STATE_HOME is set; "
      "set one of them");
}

std::string TokenPath(const std::string& folder) { return folder + "/token"; }

absl::StatusOr<RunFolder> RunFolder::Make(const std::string& runs_folder, const std::string& name) {
  RunFolder folder;
  folder.path_ = FolderOf(runs_folder, name);
  std::error_code error;
  std::filesystem::create_directories(runs_folder, error);
  if (error) return CannotMake(folder.path_, error.message());
  // Also where it was there before: names of programs and their output are nobody else's.
  chmod(runs_folder.c_str(), 0700);
  Prune(runs_folder);
  if (mkdir(folder.path_.c_str(), 0700) != 0) return CannotMake(folder.path_, ErrnoText(errno));
  folder.lock_ = OwnedFd(CreateOwnFile(LockPath(folder.path_), 0600));
  if (!folder.lock_.valid() || flock(folder.lock_.get(), LOCK_EX | LOCK_NB) != 0)
    return CannotMake(folder.path_, ErrnoText(errno));
  const OwnedFd reserve(CreateOwnFile(ReservePath(folder.path_), 0600));
  const std::string zeros(kRunReserveBytes, '\0');
  const int refused = reserve.valid() ? WriteAll(reserve.get(), zeros.data(), zeros.size()) : errno;
  if (refused == 0) return folder;
  folder.Remove();
  return CannotMake(folder.path_, ErrnoText(refused));
}

absl::Status RunFolder::Write(const RunRecord& record) const {
  return WriteWholeFile(RecordPath(path_), ToJson(record), 0600);
}

absl::Status RunFolder::WriteToken(const Token& token) const {
  const OwnedFd fd(CreateOwnFile(TokenPath(path_), 0600));
  std::string digits = ToDigits(token);
  const int error = fd.valid() ? WriteAll(fd.get(), digits.data(), digits.size()) : errno;
  explicit_bzero(digits.data(), digits.size());
  return error == 0 ? absl::OkStatus() : CannotMake(path_, ErrnoText(error));
}

void RunFolder::RemoveToken() const { unlink(TokenPath(path_).c_str()); }

void RunFolder::FreeReserve() const { unlink(ReservePath(path_).c_str()); }

void RunFolder::Remove() const {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

bool IsLive(const std::string& folder) {
  const OwnedFd fd(open(LockPath(folder).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return false;
  if (flock(fd.get(), LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  if (!IsOnNetwork(fd.get())) return false;
  const absl::StatusOr<RunRecord> record = ReadRecord(folder);
  return record.ok() && record->host != HostName() && !record->ending.has_value();
}

absl::StatusOr<KnownRun> ReadRun(const std::string& folder) {
  // Before the record, which a recorder completes before it goes.
  const bool live = IsLive(folder);
  absl::StatusOr<RunRecord> record = ReadRecord(folder);
  if (!record.ok()) return record.status();
  record->name = folder.substr(folder.rfind('/') + 1);
  return KnownRun{*std::move(record), live};
}

absl::StatusOr<std::vector<KnownRun>> ListRuns(const std::string& runs_folder) {
  std::error_code error;
  std::vector<KnownRun> runs;
  std::filesystem::directory_iterator entries(runs_folder, error);
  if (error == std::errc::no_such_file_or_directory) return runs;
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    absl::StatusOr<KnownRun> run = ReadRun(entries->path().string());
    if (run.ok()) runs.push_back(*std::move(run));
  }
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot read the folder of the runs, ", runs_folder, ": ", error.message()));
  }
  std::sort(runs.begin(), runs.end(), [](const KnownRun& a, const KnownRun& b) {
    return std::tie(a.record.started_ms, a.record.name) >
           std::tie(b.record.started_ms, b.record.name);
  });
  return runs;
}

absl::StatusOr<KnownRun> FindRun(const std::string& runs_folder, const std::string& name,
                                 RunChoice choice) {
  absl::StatusOr<std::vector<KnownRun>> runs = ListRuns(runs_folder);
  if (!runs.ok()) return runs.status();
  const KnownRun* past = nullptr;
  for (const KnownRun& run : *runs) {
    if (!name.empty() && !IsNamed(run.record, name)) continue;
    if (run.live || choice == RunChoice::kAny) return run;
    if (past == nullptr) past = &run;
  }
  if (past != nullptr) {
    return absl::NotFoundError(absl::StrCat("run ", past->record.name, " has ended (",
                                            StateText(*past), "); ddpctl runs shows all"));
  }
  return absl::NotFoundError(
      name.empty() ? "this user has no detached run on this machine; ddprun --detach starts one"
                   : absl::StrCat("this user has no detached run named '", name,
                                  "'; ddpctl runs shows those that there are"));
}

}  // namespace ddprun
