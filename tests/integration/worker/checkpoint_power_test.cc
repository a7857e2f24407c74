// SPDX-License-Identifier: Apache-2.0
// What a crash of the machine would find of a training's checkpoints: the system calls of a writer
// are watched, and no checkpoint that is reported as saved, and no file that gets its name, may
// still be in memory only. Nor may an older checkpoint be deleted before the newer one is on disk.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/testing/watch_system_calls.h"
#include "tests/unit/worker/small_snapshot.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/library/checkpoint/checkpoint_writer.h"
#include "worker/library/files/atomic_file.h"

namespace ddprun {
namespace {

constexpr int kSaves = 4;
constexpr int kKept = 2;

// Reports the folder, its owner and each save by one byte to a pipe.
[[noreturn]] void SaveSeveral(const std::string& folder, int acknowledge) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
  raise(SIGSTOP);
  {
    if (MakeFolder(folder)) _exit(1);
    if (write(acknowledge, "", 1) != 1) _exit(1);
    SetCurrentOwner(folder, {.training = "t", .run = "run"});
    if (write(acknowledge, "", 1) != 1) _exit(1);
    CheckpointWriter writer({.folder = folder, .training = "t", .keep = kKept});
    for (std::int64_t step = 1; step <= kSaves; ++step) {
      if (!writer.Save(step, SmallSnapshot(step))) _exit(1);
      if (!writer.WaitUntilSaved(std::chrono::seconds(60))) _exit(1);
      const auto reports = writer.TakeReports();
      if (reports.size() != 1 || !reports.front().error.empty()) _exit(1);
      if (write(acknowledge, "", 1) != 1) _exit(1);
    }
  }
  _exit(0);
}

// What is in memory only, by the calls so far.
class CheckpointMemory {
 public:
  void Enter(const __ptrace_syscall_info& call, pid_t thread) {
    switch (call.entry.nr) {
      case SYS_write:
        if (IsPipe(thread, call.entry.args[0])) {
          Acknowledge();
          return;
        }
        [[fallthrough]];
      case SYS_pwrite64:
        dirty_.insert(FileOf(thread, call.entry.args[0]));
        return;
      case SYS_fdatasync:
      case SYS_fsync:
        // Done when it returns, which is before the same thread's next call.
        dirty_.erase(FileOf(thread, call.entry.args[0]));
        return;
#ifdef SYS_rename
      case SYS_rename:
        Rename(StringIn(thread, call.entry.args[0]));
        return;
      case SYS_mkdir:
        Make(StringIn(thread, call.entry.args[0]));
        return;
      case SYS_unlink:
        Unlink(StringIn(thread, call.entry.args[0]));
        return;
#endif
      case SYS_renameat:
      case SYS_renameat2:
        Rename(StringIn(thread, call.entry.args[1]));
        return;
      case SYS_mkdirat:
        Make(StringIn(thread, call.entry.args[1]));
        return;
      case SYS_unlinkat:
        Unlink(StringIn(thread, call.entry.args[1]));
        return;
      default:
        return;
    }
  }

  int acknowledged = 0;
  int made = 0;
  int renames = 0;
  int deleted = 0;

 private:
  void Acknowledge() {
    EXPECT_FALSE(dirty_.contains(named_)) << "reported as saved, not on disk";
    for (const ino_t folder : folders_)
      EXPECT_FALSE(dirty_.contains(folder)) << "reported as saved, a name not on disk";
    ++acknowledged;
  }
  void Rename(const std::string& temporary) {
    named_ = FileAt(temporary);
    EXPECT_NE(named_, 0u) << temporary;
    EXPECT_FALSE(dirty_.contains(named_)) << temporary << ": named before it was on disk";
    ChangeNamesBeside(temporary);
    ++renames;
  }
  void Make(const std::string& path) {
    ChangeNamesBeside(path);
    ++made;
  }
  void ChangeNamesBeside(const std::string& path) {
    const ino_t folder = FileAt(std::filesystem::path(path).parent_path());
    EXPECT_NE(folder, 0u) << path;
    folders_.insert(folder);
    dirty_.insert(folder);
  }
  void Unlink(const std::string& path) {
    EXPECT_FALSE(dirty_.contains(FileAt(std::filesystem::path(path).parent_path())))
        << path << ": deleted before the name of the newer one was on disk";
    ++deleted;
  }

  ino_t named_ = 0;          // the file that got its name last
  std::set<ino_t> folders_;  // in which a name was made or changed
  std::set<ino_t> dirty_;    // files with unsynced bytes, folders with unsynced names
};

TEST(CheckpointPowerTest, NothingIsReportedNamedOrReplacedThatIsInMemoryOnly) {
  const TempFiles files;
  const std::string folder = files.folder() + "/runs/first";
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) SaveSeveral(folder, ends[1]);
  CheckpointMemory memory;
  const std::optional<int> status = WatchSystemCalls(
      child, [&](const __ptrace_syscall_info& call, pid_t thread) { memory.Enter(call, thread); });
  close(ends[0]);
  close(ends[1]);
  if (!status.has_value()) GTEST_SKIP() << "this user may not trace processes here";
  ASSERT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0) << *status;
  EXPECT_EQ(memory.made, 2);
  EXPECT_EQ(memory.acknowledged, 2 + kSaves);
  EXPECT_EQ(memory.renames, 1 + kSaves);
  EXPECT_EQ(memory.deleted, kSaves - kKept);
}

}  // namespace
}  // namespace ddprun
