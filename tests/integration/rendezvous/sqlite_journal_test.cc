// SPDX-License-Identifier: Apache-2.0
// The journal in a real folder: what a service writes is there for the next one, one service at a
// time, and every way in which the folder can be wrong has its sentence.
#include "rendezvous/journal/sqlite_journal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <mutex>

#include "rendezvous/journal/journal_database.h"
#include "tests/integration/rendezvous/journal_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(SqliteJournalTest, WhatWasCommittedIsThereForTheNext) {
  JournalFolder folder;
  for (const bool sync_on_commit : {false, true}) {
    std::filesystem::remove(folder.File("journal"));
    {
      OpenedJournal first = OpenJournal(folder.path(), {.sync_on_commit = sync_on_commit});
      ASSERT_TRUE(first.status.ok()) << first.status;
      EXPECT_THAT(first.records, IsEmpty());
      EXPECT_EQ(first.journal->Append("one"), 1u);
      EXPECT_EQ(first.journal->Append(""), 2u);
      EXPECT_TRUE(first.journal->Commit(2).ok());
      EXPECT_EQ(first.journal->Append("three"), 3u);
      EXPECT_TRUE(first.journal->Commit(3).ok());
      EXPECT_TRUE(first.journal->Commit(1).ok());
    }
    OpenedJournal second = OpenJournal(folder.path());
    ASSERT_TRUE(second.status.ok()) << second.status;
    EXPECT_THAT(second.records, ElementsAre("one", "", "three"));
    EXPECT_TRUE(second.journal->Commit(second.journal->Append("four")).ok());
    second.journal.reset();
    EXPECT_THAT(OpenJournal(folder.path()).records, ElementsAre("one", "", "three", "four"));
  }
}

TEST(SqliteJournalTest, WhatWasOnlyAppendedIsWrittenAtTheEndAndSoon) {
  JournalFolder folder;
  OpenedJournal opened = OpenJournal(folder.path());
  const std::uint64_t before = opened.journal->Report().bytes;
  opened.journal->Append("nobody waits for this");
  EXPECT_TRUE(Eventually([&] { return opened.journal->Report().bytes > before; }));
  opened.journal->Append("nor for this");
  opened.journal.reset();
  EXPECT_EQ(OpenJournal(folder.path()).records.size(), 2u);
}

// A service that has nothing to do must not write.
TEST(SqliteJournalTest, ThatRecordsWereFlushedIsNotedOnce) {
  JournalFolder folder;
  OpenedJournal opened =
      OpenJournal(folder.path(), {.sync_interval = std::chrono::milliseconds(1)});
  EXPECT_TRUE(opened.journal->Commit(opened.journal->Append("r")).ok());
  const auto noted = [&] {
    std::string number;
    std::getline(std::ifstream(folder.File("synced")) >> std::ws, number);
    return number;
  };
  ASSERT_TRUE(Eventually([&] { return noted() == "00000000000000000001"; }));
  const auto written = std::filesystem::last_write_time(folder.File("synced"));
  const std::uint64_t bytes = opened.journal->Report().bytes;
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(std::filesystem::last_write_time(folder.File("synced")), written);
    ASSERT_EQ(opened.journal->Report().bytes, bytes);
  }
}

TEST(SqliteJournalTest, ASnapshotTakesThePlaceOfTheRecordsBeforeIt) {
  JournalFolder folder;
  OpenedJournal opened = OpenJournal(folder.path(), {.segment_bytes_max = 20'000});
  std::uint64_t last = 0;
  int count = 0;
  while (!opened.journal->WantsSnapshot()) {
    last = opened.journal->Append("record " + std::to_string(++count));
  }
  opened.journal->Snapshot({"state", std::to_string(count)});
  EXPECT_FALSE(opened.journal->WantsSnapshot()) << "one is under way";
  last = opened.journal->Append("after");
  EXPECT_TRUE(opened.journal->Commit(last).ok());
  ASSERT_TRUE(Eventually([&] { return opened.journal->Report().snapshots == 1; }));
  EXPECT_TRUE(opened.journal->Report().last_snapshot.ok());
  EXPECT_LT(opened.journal->Report().bytes, 20'000u);
  EXPECT_FALSE(std::filesystem::exists(folder.File("journal.new")));
  EXPECT_TRUE(opened.journal->Commit(opened.journal->Append("later")).ok());
  opened.journal.reset();
  OpenedJournal next = OpenJournal(folder.path());
  EXPECT_THAT(next.parts, ElementsAre("state", std::to_string(count)));
  EXPECT_THAT(next.records, ElementsAre("after", "later"));
}

TEST(SqliteJournalTest, ASnapshotIsNotWantedAgainBeforeItHasDoubled) {
  JournalFolder folder;
  OpenedJournal opened = OpenJournal(folder.path(), {.segment_bytes_max = 20'000});
  opened.journal->Append(std::string(20'000, 'r'));
  ASSERT_TRUE(opened.journal->WantsSnapshot());
  opened.journal->Snapshot({std::string(100'000, 's')});
  ASSERT_TRUE(Eventually([&] { return opened.journal->Report().snapshots == 1; }));
  opened.journal->Append(std::string(90'000, 'r'));
  EXPECT_FALSE(opened.journal->WantsSnapshot());
  opened.journal->Append(std::string(20'000, 'r'));
  EXPECT_TRUE(opened.journal->WantsSnapshot());
}

TEST(SqliteJournalTest, ASnapshotThatFailsLeavesTheJournalAsItWas) {
  JournalFolder folder;
  OpenedJournal opened = OpenJournal(folder.path(), {.segment_bytes_max = 10});
  ASSERT_TRUE(opened.journal->Commit(opened.journal->Append("one")).ok());
  // Its second part is too large.
  opened.journal->Snapshot({"state", std::string(kJournalRecordBytesMax + 1, 's')});
  ASSERT_TRUE(Eventually([&] { return !opened.journal->Report().last_snapshot.ok(); }));
  EXPECT_THAT(Message(opened.journal->Report().last_snapshot), HasSubstr("is larger than the"));
  EXPECT_TRUE(opened.journal->Report().error.ok());
  EXPECT_FALSE(opened.journal->WantsSnapshot()) << "not at once again";
  ASSERT_TRUE(opened.journal->Commit(opened.journal->Append("two")).ok());
  opened.journal.reset();
  {
    OpenedJournal next = OpenJournal(folder.path());
    ASSERT_TRUE(next.status.ok()) << next.status;
    EXPECT_THAT(next.parts, IsEmpty());
    EXPECT_THAT(next.records, ElementsAre("one", "two"));
    // The next one is not mixed with what this one has left.
    next.journal->Snapshot({"whole"});
    ASSERT_TRUE(Eventually([&] { return next.journal->Report().snapshots == 1; }));
  }
  const OpenedJournal last = OpenJournal(folder.path());
  EXPECT_THAT(last.parts, ElementsAre("whole"));
  EXPECT_THAT(last.records, IsEmpty());
}

// What a snapshot has replaced is deleted, so the folder does not grow with the time.
TEST(SqliteJournalTest, TheFolderStaysSmallOverManySnapshots) {
  JournalFolder folder;
  OpenedJournal opened = OpenJournal(folder.path(), {.segment_bytes_max = 50'000});
  std::uint64_t wanted = 0;
  while (wanted < 10) {
    ASSERT_TRUE(opened.journal->Commit(opened.journal->Append(std::string(500, 'r'))).ok());
    if (!opened.journal->WantsSnapshot()) continue;
    opened.journal->Snapshot({std::string(10'000, 's')});
    ++wanted;
    ASSERT_TRUE(Eventually([&] { return opened.journal->Report().snapshots == wanted; }))
        << opened.journal->Report().last_snapshot;
  }
  EXPECT_LT(std::filesystem::file_size(folder.File("journal")) +
                std::filesystem::file_size(folder.File("journal-wal")),
            300'000u);
}

// Every record is numbered by the lock that it is appended under, as the service's are; snapshots
// of the count are taken under it too.
TEST(SqliteJournalTest, ManyThreadsAppendAndCommitWhileSnapshotsAreTaken) {
  constexpr int kThreads = 8;
  constexpr int kRecords = 2000;
  JournalFolder folder;
  OpenedJournal opened = OpenJournal(
      folder.path(), {.sync_interval = std::chrono::milliseconds(1), .segment_bytes_max = 20'000});
  std::mutex state;
  int count = 0;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRecords; ++i) {
        std::uint64_t number = 0;
        {
          const std::lock_guard<std::mutex> lock(state);
          number = opened.journal->Append(std::to_string(++count));
          if (opened.journal->WantsSnapshot()) {
            // Large enough that others write meanwhile.
            opened.journal->Snapshot({std::to_string(count), std::string(100'000, 's')});
          }
        }
        if (!opened.journal->Commit(number).ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(Eventually([&] { return opened.journal->Report().snapshots > 0; }));
  opened.journal.reset();
  OpenedJournal next = OpenJournal(folder.path());
  ASSERT_TRUE(next.status.ok()) << next.status;
  ASSERT_EQ(next.parts.size(), 2u);
  int expected = std::stoi(next.parts.front());
  for (const std::string& record : next.records) ASSERT_EQ(record, std::to_string(++expected));
  EXPECT_EQ(expected, kThreads * kRecords);
}

// ---- What can be wrong with a folder

TEST(SqliteJournalTest, TwoServicesCannotHaveOneFolder) {
  JournalFolder folder;
  OpenedJournal first = OpenJournal(folder.path());
  const OpenedJournal second = OpenJournal(folder.path());
  EXPECT_EQ(second.status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Message(second.status),
            "the journal in " + folder.path() + " belongs to a service that runs (process " +
                std::to_string(getpid()) + "); stop it, or name another folder");
  first.journal.reset();
  EXPECT_TRUE(OpenJournal(folder.path()).status.ok());
}

TEST(SqliteJournalTest, TheFolderIsMadeForItsOwnerOnly) {
  JournalFolder folder;
  ASSERT_TRUE(OpenJournal(folder.File("new")).status.ok());
  struct stat about {};
  ASSERT_EQ(stat(folder.File("new").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0700u);
  ASSERT_EQ(stat(folder.File("new/journal").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
}

TEST(SqliteJournalTest, WrongFoldersAreNamedInOneSentence) {
  JournalFolder folder;
  std::ofstream(folder.File("file")) << "x";
  EXPECT_THAT(Message(OpenJournal(folder.File("file")).status),
              HasSubstr(folder.File("file") + " is a file; name another"));
  EXPECT_THAT(Message(OpenJournal(folder.File("a/b")).status),
              HasSubstr("No such file or directory; name a folder that is there"));
  EXPECT_THAT(Message(OpenJournal("").status), HasSubstr("empty name"));
  std::filesystem::create_directory(folder.File("journal"));
  EXPECT_THAT(Message(OpenJournal(folder.path()).status), HasSubstr("cannot open the journal"));
}

TEST(SqliteJournalTest, AnotherProgramsFileIsNotTouched) {
  JournalFolder folder;
  std::ofstream(folder.File("journal")) << "dear diary, this is not yours";
  const OpenedJournal opened = OpenJournal(folder.path());
  EXPECT_EQ(opened.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(opened.status), HasSubstr("is not a journal of ddprun"));
  std::string text;
  std::getline(std::ifstream(folder.File("journal")) >> std::ws, text);
  EXPECT_EQ(text, "dear diary, this is not yours");
}

// A journal of the version before, and one of the version after; a database of another program.
TEST(SqliteJournalTest, OtherVersionsAndOtherDatabasesAreNamed) {
  JournalFolder folder;
  ASSERT_TRUE(OpenJournal(folder.path()).status.ok());
  const auto put = [&](int offset, char byte) {
    std::fstream file(folder.File("journal"), std::ios::in | std::ios::out);
    file.seekp(offset);
    file.put(byte);
  };
  put(63, kJournalVersion - 1);
  const OpenedJournal of_old = OpenJournal(folder.path());
  EXPECT_EQ(of_old.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(of_old.status),
              HasSubstr(folder.File("journal") + " has format 2, and this ddprun reads format 3"));
  put(63, kJournalVersion + 1);
  EXPECT_EQ(OpenJournal(folder.path()).status.code(), absl::StatusCode::kFailedPrecondition);
  put(63, kJournalVersion);
  put(68, 'D');
  const OpenedJournal other = OpenJournal(folder.path());
  EXPECT_EQ(other.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(other.status), HasSubstr("is not a journal of ddprun"));
  put(68, 'd');
  EXPECT_TRUE(OpenJournal(folder.path()).status.ok());
}

// Whatever else was in the folder: the sentence about damage says to move the file away.
TEST(SqliteJournalTest, AJournalThatWasMovedAwayIsBegunAnew) {
  JournalFolder folder;
  {
    OpenedJournal opened = OpenJournal(folder.path());
    ASSERT_TRUE(opened.journal->Commit(opened.journal->Append("one")).ok());
    std::filesystem::copy(folder.File("journal-wal"), folder.File("left"));
  }
  std::filesystem::remove(folder.File("journal"));
  std::filesystem::rename(folder.File("left"), folder.File("journal-wal"));
  std::ofstream(folder.File("journal.new")) << "half a journal";
  const OpenedJournal opened = OpenJournal(folder.path());
  ASSERT_TRUE(opened.status.ok()) << opened.status;
  EXPECT_THAT(opened.records, IsEmpty());
}

TEST(SqliteJournalTest, ALinkInTheJournalsPlaceIsNotFollowed) {
  JournalFolder folder;
  std::ofstream(folder.File("target")) << "";
  std::filesystem::create_symlink(folder.File("target"), folder.File("journal"));
  EXPECT_FALSE(OpenJournal(folder.path()).status.ok());
  EXPECT_EQ(std::filesystem::file_size(folder.File("target")), 0u);
}

TEST(SqliteJournalTest, AFolderThatMayNotBeWrittenIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody who may not";
  JournalFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const uid_t nobody = 65534;
  ASSERT_EQ(seteuid(nobody), 0);
  const OpenedJournal opened = OpenJournal(folder.path());
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(opened.status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(opened.status),
              HasSubstr("Permission denied; give this user the right to write there"));
}

}  // namespace
}  // namespace ddprun
