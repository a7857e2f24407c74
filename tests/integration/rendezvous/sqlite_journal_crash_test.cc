// SPDX-License-Identifier: Apache-2.0
// The journal under what ends services: kill -9 at random moments and at every system call, and a
// full disk. What Commit has acknowledged is there afterwards, and nothing else than what was
// appended.
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <random>

#include "tests/integration/rendezvous/journal_fixture.h"
#include "tests/testing/kill_at_system_call.h"
#include "tests/testing/small_disk.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

// The state of the services below: how many records there were. Each record is its number.
int CountOf(const OpenedJournal& opened) {
  int count = opened.parts.empty() ? 0 : std::stoi(opened.parts.front());
  for (const std::string& record : opened.records) {
    EXPECT_EQ(record, std::to_string(++count)) << "a record is missing or twice";
  }
  return count;
}

// What a service says after each commit.
struct Progress {
  int count;
  int snapshots;  // that it has made
};

// Threads that append for ever and say after each commit how far they are. Never returns.
[[noreturn]] void ServeUntilKilled(const std::string& folder, int acknowledge) {
  OpenedJournal opened = OpenJournal(
      folder, {.sync_interval = std::chrono::milliseconds(1), .segment_bytes_max = 5'000});
  if (!opened.status.ok()) _exit(1);
  std::mutex state;
  int count = CountOf(opened);
  const auto serve = [&] {
    for (;;) {
      std::uint64_t number = 0;
      int mine = 0;
      {
        const std::lock_guard<std::mutex> lock(state);
        mine = ++count;
        number = opened.journal->Append(std::to_string(mine));
        if (opened.journal->WantsSnapshot()) {
          opened.journal->Snapshot({std::to_string(count), std::string(20'000, 's')});
        }
      }
      if (!opened.journal->Commit(number).ok()) _exit(1);
      const Progress progress{mine, static_cast<int>(opened.journal->Report().snapshots)};
      if (write(acknowledge, &progress, sizeof progress) != sizeof progress) _exit(1);
    }
  };
  std::thread second(serve);
  std::thread third(serve);
  serve();
  _exit(1);
}

TEST(SqliteJournalCrashTest, KilledAtRandomMomentsItHasAllThatWasCommitted) {
  JournalFolder folder(InMemory());
  constexpr int kKills = 80;
  std::mt19937 random(5);
  int snapshots_seen = 0;
  for (int round = 0; round < kKills; ++round) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) ServeUntilKilled(folder.path(), ends[1]);
    close(ends[1]);
    int acknowledged = 0;
    Progress said{};
    const auto hear = [&] {
      if (read(ends[0], &said, sizeof said) != static_cast<ssize_t>(sizeof said)) return false;
      acknowledged = std::max(acknowledged, said.count);
      return true;
    };
    // However slow the disk is: half of them come to an end of a snapshot, the others hardly do.
    while (round % 2 == 0 && said.snapshots == 0) ASSERT_TRUE(hear());
    const auto enough = 1 + random() % 300;
    for (unsigned i = 0; i < enough; ++i) ASSERT_TRUE(hear());
    kill(child, SIGKILL);
    // What it had said before it died counts too.
    while (hear()) {
    }
    close(ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const OpenedJournal opened = OpenJournal(folder.path());
    ASSERT_TRUE(opened.status.ok()) << opened.status;
    ASSERT_GE(CountOf(opened), acknowledged);
    if (!opened.parts.empty()) ++snapshots_seen;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GE(snapshots_seen, kKills / 2);
}

// ---- Killed at every system call

// Five commits with a snapshot between them. Ends by itself unless it is killed.
[[noreturn]] void ServeOnce(const std::string& folder, int acknowledge) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
  raise(SIGSTOP);
  {
    OpenedJournal opened = OpenJournal(folder, {.segment_bytes_max = 10});
    if (!opened.status.ok()) _exit(1);
    int count = CountOf(opened);
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t number = opened.journal->Append(std::to_string(++count));
      if (i == 2) opened.journal->Snapshot({std::to_string(count), "state"});
      // A journal that is closed before does not begin with it.
      if (i == 4) Eventually([&] { return opened.journal->Report().snapshots == 1; });
      if (!opened.journal->Commit(number).ok()) _exit(1);
      if (write(acknowledge, &count, sizeof count) != sizeof count) _exit(1);
    }
  }
  _exit(0);
}

TEST(SqliteJournalCrashTest, KilledAtEverySystemCallItHasAllThatWasCommitted) {
  int killed = 0;
  bool saw_old = false;
  bool saw_new = false;
  for (int stops = 0;; ++stops) {
    ASSERT_LT(stops, 5000) << "it does not end";
    JournalFolder folder(InMemory());
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) ServeOnce(folder.path(), ends[1]);
    close(ends[1]);
    const bool was_killed = KillAfter(child, stops);
    int acknowledged = 0;
    for (int more = 0; read(ends[0], &more, sizeof more) == sizeof more;) acknowledged = more;
    close(ends[0]);
    const OpenedJournal opened = OpenJournal(folder.path());
    ASSERT_TRUE(opened.status.ok()) << opened.status << " after " << stops;
    ASSERT_GE(CountOf(opened), acknowledged) << stops;
    ASSERT_FALSE(HasFailure()) << stops;
    if (!was_killed && stops == 0) GTEST_SKIP() << "this user may not trace processes here";
    if (!was_killed) {
      ASSERT_EQ(acknowledged, 5);
      break;
    }
    ++killed;
    (opened.parts.empty() ? saw_old : saw_new) = true;
  }
  EXPECT_GT(killed, 60);
  EXPECT_TRUE(saw_old);
  EXPECT_TRUE(saw_new);
}

// ---- A full disk

// Snapshots, where there are any, grow until there is no room for old and new together.
void FillAndReopen(const std::string& folder, bool with_snapshots) {
  int acknowledged = 0;
  {
    OpenedJournal opened = OpenJournal(folder);
    ASSERT_TRUE(opened.status.ok()) << opened.status;
    absl::Status status;
    for (int count = 1; status.ok(); ++count) {
      ASSERT_LT(count, 100'000) << "the disk never became full";
      const std::uint64_t number = opened.journal->Append(std::to_string(count));
      if (with_snapshots && count % 10 == 0) {
        opened.journal->Snapshot(
            {std::to_string(count), std::string(static_cast<std::size_t>(37 * count), 's')});
      }
      status = opened.journal->Commit(number);
      if (status.ok()) acknowledged = count;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder + "/journal: No space left"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("free some space there"));
    // For ever, and in the same words.
    EXPECT_EQ(opened.journal->Commit(opened.journal->Append("more")), status);
    EXPECT_EQ(opened.journal->Report().error, status);
  }
  // Somebody makes room.
  ASSERT_TRUE(EnlargeSmallDisk(folder));
  const OpenedJournal next = OpenJournal(folder);
  ASSERT_TRUE(next.status.ok()) << next.status;
  EXPECT_EQ(CountOf(next), acknowledged);
}

TEST(SqliteJournalCrashTest, AFullDiskLosesNothingThatWasCommitted) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small file system";
  constexpr std::size_t kPage = 4096;
  for (int size = 4; size < 28; ++size) {
    for (const bool with_snapshots : {false, true}) {
      SCOPED_TRACE(size);
      JournalFolder folder;
      if (!RunOnSmallDisk(folder.path(), size * kPage,
                          [&] { FillAndReopen(folder.path(), with_snapshots); }))
        GTEST_SKIP() << "this user may not mount here";
    }
  }
}

}  // namespace
}  // namespace ddprun
