// SPDX-License-Identifier: Apache-2.0
// What a crash of the machine would find: the system calls of a service are watched, and nothing
// that is acknowledged, and no file that gets its name, may still be in memory only.
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "tests/integration/rendezvous/journal_fixture.h"
#include "tests/testing/watch_system_calls.h"

namespace ddprun {
namespace {

// Says each commit by one byte to a pipe.
[[noreturn]] void Serve(const std::string& folder, int acknowledge) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
  raise(SIGSTOP);
  OpenedJournal opened = OpenJournal(folder, {.sync_on_commit = true});
  if (!opened.status.ok()) _exit(1);
  for (int i = 0; i < 10; ++i) {
    if (!opened.journal->Commit(opened.journal->Append("record")).ok()) _exit(1);
    if (write(acknowledge, "", 1) != 1) _exit(1);
    // Its parts need not be on the disk when a record is, so that none is acknowledged meanwhile.
    if (i % 3 == 2) opened.journal->Snapshot({"state"});
    const auto snapshots = static_cast<std::uint64_t>(i + 1) / 3;
    if (!Eventually([&] { return opened.journal->Report().snapshots == snapshots; })) _exit(1);
  }
  _exit(0);
}

// What is in memory only, by the calls so far.
class Memory {
 public:
  explicit Memory(const JournalFolder& folder) : folder_(folder) {}

  void Enter(const __ptrace_syscall_info& call, pid_t thread) {
    const ino_t file = FileOf(thread, call.entry.args[0]);
    switch (call.entry.nr) {
      case SYS_pwrite64:
        if (file == FileAt(folder_.File("synced"))) {
          EXPECT_FALSE(IsDirty(folder_.File("journal-wal"))) << "noted before it was on disk";
        }
        if (file == FileAt(folder_.File("journal"))) {
          EXPECT_FALSE(IsDirty(folder_.File("journal-wal"))) << "copied before it was on disk";
          ++copied_pages;
        }
        dirty_.insert(file);
        return;
      case SYS_fdatasync:
      case SYS_fsync:
        // Done when it returns, which is before the same thread's next call; the others only write
        // elsewhere.
        dirty_.erase(file);
        ++syncs;
        return;
      case SYS_ftruncate:
        if (file == FileAt(folder_.File("journal-wal"))) {
          EXPECT_FALSE(IsDirty(folder_.File("journal"))) << "the log emptied before its copy is";
          ++emptied;
        }
        return;
      case SYS_renameat2:
#ifdef SYS_rename
      case SYS_rename:
#endif
        EXPECT_FALSE(IsDirty(folder_.File("journal.new"))) << "named before it was on disk";
        dirty_.insert(FileAt(folder_.path()));
        ++renames;
        return;
      case SYS_write:
        if (!IsPipe(thread, call.entry.args[0])) return;
        EXPECT_FALSE(IsDirty(folder_.File("journal-wal"))) << "acknowledged, not on disk";
        EXPECT_FALSE(IsDirty(folder_.path())) << "acknowledged, the name not on disk";
        ++acknowledged;
        return;
      default:
        return;
    }
  }

  int syncs = 0;
  int renames = 0;
  int copied_pages = 0;
  int emptied = 0;
  int acknowledged = 0;

 private:
  bool IsDirty(const std::string& path) const { return dirty_.contains(FileAt(path)); }

  const JournalFolder& folder_;
  std::set<ino_t> dirty_;
};

TEST(SqliteJournalPowerTest, NothingIsAcknowledgedOrNamedThatIsInMemoryOnly) {
  JournalFolder folder;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) Serve(folder.path(), ends[1]);
  Memory memory(folder);
  const std::optional<int> status = WatchSystemCalls(
      child, [&](const __ptrace_syscall_info& call, pid_t thread) { memory.Enter(call, thread); });
  close(ends[0]);
  close(ends[1]);
  if (!status.has_value()) GTEST_SKIP() << "this user may not trace processes here";
  ASSERT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0) << *status;
  EXPECT_EQ(memory.acknowledged, 10);
  EXPECT_EQ(memory.renames, 1);
  EXPECT_GT(memory.copied_pages, 3);
  EXPECT_GE(memory.emptied, 3) << "once a snapshot";
  EXPECT_GE(memory.syncs, 10 + 3 * 2);
}

}  // namespace
}  // namespace ddprun
