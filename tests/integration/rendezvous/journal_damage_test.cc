// SPDX-License-Identifier: Apache-2.0
// What is read back of a journal that was torn or damaged: what was written up to a point, or an
// error, and never anything else. Nothing that had been flushed to the disk is missing without a
// word.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "rendezvous/journal/sqlite_journal.h"
#include "tests/integration/rendezvous/journal_fixture.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void Put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

bool IsPrefix(const std::vector<std::string>& some, const std::vector<std::string>& all) {
  return some.size() <= all.size() && std::equal(some.begin(), some.end(), all.begin());
}

// The files of a journal as a service leaves them that is killed: a snapshot of two parts, and
// records of which the first ones have been flushed.
class JournalDamageTest : public ::testing::Test {
 protected:
  static constexpr int kFlushed = 12;
  static constexpr int kRecords = 20;

  void SetUp() override {
    JournalFolder folder(InMemory());
    // What is not flushed is not for an hour.
    OpenedJournal opened = OpenJournal(folder.path(), {.sync_interval = std::chrono::hours(1)});
    ASSERT_TRUE(opened.status.ok()) << opened.status;
    ASSERT_TRUE(opened.journal->Commit(opened.journal->Append("before")).ok());
    opened.journal->Snapshot(parts_);
    ASSERT_TRUE(Eventually([&] { return opened.journal->Report().snapshots == 1; }));
    for (int i = 0; i < kRecords; ++i) {
      const std::string record =
          "record " + std::to_string(i) + std::string(static_cast<std::size_t>(i * 20), 'x');
      records_.push_back(record);
      ASSERT_TRUE(opened.journal->Commit(opened.journal->Append(record)).ok());
      if (i + 1 == kFlushed)
        flushed_bytes_ = std::filesystem::file_size(folder.File("journal-wal"));
    }
    wal_ = Contents(folder.File("journal-wal"));
    log_only_ = Contents(folder.File("journal"));
    opened.journal.reset();  // copies the log into the database
    database_ = Contents(folder.File("journal"));
    ASSERT_FALSE(std::filesystem::exists(folder.File("journal-wal")));
  }

  // `flushed`: how many of the records are noted so.
  OpenedJournal Open(const std::string& database, const std::string& wal, int flushed) {
    for (const auto& file : std::filesystem::directory_iterator(copy_.path())) {
      std::filesystem::remove(file);
    }
    Put(copy_.File("journal"), database);
    if (!wal.empty()) Put(copy_.File("journal-wal"), wal);
    // One record is before the snapshot.
    Put(copy_.File("synced"), std::to_string(flushed + 1) + "\n");
    return OpenJournal(copy_.path());
  }

  void ExpectWholeOrNamed(const OpenedJournal& opened, std::size_t at) {
    if (opened.status.ok()) {
      EXPECT_EQ(opened.parts, parts_) << at;
      EXPECT_EQ(opened.records, records_) << at;
      return;
    }
    EXPECT_THAT(std::string(opened.status.message()), HasSubstr(copy_.File("journal"))) << at;
    EXPECT_TRUE(IsPrefix(opened.parts, parts_)) << at;
    EXPECT_TRUE(IsPrefix(opened.records, records_)) << at;
  }

  const std::vector<std::string> parts_ = {std::string(3000, 'a'), ""};
  std::vector<std::string> records_;
  std::string wal_;
  std::string log_only_;  // the database that the log belongs to
  std::string database_;  // with the log in it
  std::size_t flushed_bytes_ = 0;
  JournalFolder copy_{InMemory()};
};

TEST_F(JournalDamageTest, WhatWasKilledIsWhole) {
  const OpenedJournal killed = Open(log_only_, wal_, kRecords);
  ASSERT_TRUE(killed.status.ok()) << killed.status;
  ExpectWholeOrNamed(killed, 0);
  const OpenedJournal closed = Open(database_, "", kRecords);
  ASSERT_TRUE(closed.status.ok()) << closed.status;
  ExpectWholeOrNamed(closed, 0);
}

// A process that is killed leaves the beginning of what it wrote.
TEST_F(JournalDamageTest, EveryBeginningOfTheLogGivesTheRecordsThatAreWholeInIt) {
  std::size_t most = 0;
  for (std::size_t size = 0; size <= wal_.size(); size += 41) {
    const OpenedJournal opened = Open(log_only_, wal_.substr(0, size), 0);
    ASSERT_TRUE(opened.status.ok()) << size << ": " << opened.status;
    ASSERT_EQ(opened.parts, parts_);
    ASSERT_TRUE(IsPrefix(opened.records, records_)) << size;
    ASSERT_GE(opened.records.size(), most) << size;
    most = opened.records.size();
    if (size >= flushed_bytes_) {
      ASSERT_GE(opened.records.size(), static_cast<std::size_t>(kFlushed));
    }
  }
  EXPECT_GE(most, records_.size() - 1);
}

TEST_F(JournalDamageTest, ALogThatEndsBeforeWhatWasFlushedIsDamaged) {
  const OpenedJournal opened = Open(log_only_, wal_.substr(0, flushed_bytes_ / 2), kFlushed);
  EXPECT_EQ(opened.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      std::string(opened.status.message()),
      AllOf(HasSubstr("the journal " + copy_.File("journal") + " is damaged: it ends with record "),
            HasSubstr("had been flushed to the disk; check that disk"), HasSubstr("move it away")));
}

TEST_F(JournalDamageTest, AnUnfinishedEndIsCutOffAndWrittenOver) {
  {
    OpenedJournal opened = Open(log_only_, wal_ + "half a frame", kRecords);
    ASSERT_TRUE(opened.status.ok()) << opened.status;
    EXPECT_EQ(opened.records, records_);
    ASSERT_TRUE(opened.journal->Commit(opened.journal->Append("more")).ok());
  }
  records_.push_back("more");
  EXPECT_EQ(OpenJournal(copy_.path()).records, records_);
}

TEST_F(JournalDamageTest, EveryFlippedBitIsAnErrorOrHarmless) {
  std::mt19937 random(1);
  int named = 0;
  const auto flip = [&](std::string bytes, std::size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
    return bytes;
  };
  for (std::size_t at = random() % 3; at < database_.size(); at += 1 + random() % 15) {
    const OpenedJournal opened = Open(flip(database_, at), "", kRecords);
    ASSERT_NO_FATAL_FAILURE(ExpectWholeOrNamed(opened, at));
    if (!opened.status.ok()) ++named;
  }
  for (std::size_t at = random() % 3; at < wal_.size(); at += 1 + random() % 19) {
    const OpenedJournal opened = Open(log_only_, flip(wal_, at), kRecords);
    ASSERT_NO_FATAL_FAILURE(ExpectWholeOrNamed(opened, at));
    if (!opened.status.ok()) ++named;
  }
  ASSERT_FALSE(HasFailure());
  EXPECT_GT(named, 300);
}

// A crash of the machine may lose any page that was not flushed, and keep later ones.
TEST_F(JournalDamageTest, ACrashOfTheMachineGivesABeginningWithAllThatWasFlushed) {
  constexpr std::size_t kPage = 512;
  std::mt19937 random(1);
  int shortened = 0;
  for (int round = 0; round < 300; ++round) {
    std::string wal = wal_;
    for (std::size_t page = 0; page < wal.size(); page += kPage) {
      if (random() % 16 != 0) continue;
      for (std::size_t i = std::max(page, flushed_bytes_); i < page + kPage && i < wal.size();
           ++i) {
        wal[i] = '\0';
      }
    }
    const OpenedJournal opened = Open(log_only_, wal, kFlushed);
    ASSERT_TRUE(opened.status.ok()) << opened.status;
    ASSERT_EQ(opened.parts, parts_);
    ASSERT_TRUE(IsPrefix(opened.records, records_));
    ASSERT_GE(opened.records.size(), static_cast<std::size_t>(kFlushed));
    if (opened.records.size() < records_.size()) ++shortened;
  }
  EXPECT_GT(shortened, 100);
}

TEST_F(JournalDamageTest, AnyBytesGiveABeginningOrAnError) {
  std::mt19937 random(3);
  for (int round = 0; round < 1000; ++round) {
    std::string database = random() % 2 == 0 ? database_ : log_only_;
    std::string wal = random() % 2 == 0 ? wal_ : "";
    for (std::string* bytes : {&database, &wal}) {
      if (bytes->empty()) continue;
      // The header stays, so that SQLite gets to see the rest.
      const std::size_t header = bytes == &database ? 100 : 0;
      const std::size_t at = header + random() % (bytes->size() - header);
      const std::size_t count = std::min<std::size_t>(random() % 300, bytes->size() - at);
      for (std::size_t i = at; i < at + count; ++i) (*bytes)[i] = static_cast<char>(random());
      if (random() % 4 == 0) bytes->resize(at);
    }
    const OpenedJournal opened = Open(database, wal, 0);
    ASSERT_TRUE(IsPrefix(opened.parts, parts_)) << round;
    ASSERT_TRUE(IsPrefix(opened.records, records_)) << round;
  }
}

TEST_F(JournalDamageTest, ACallbacksErrorEndsTheOpening) {
  ASSERT_TRUE(Open(database_, "", kRecords).status.ok());
  int records = 0;
  const JournalReplay replay{[](absl::string_view) { return absl::OkStatus(); },
                             [&](absl::string_view) {
                               ++records;
                               return absl::InvalidArgumentError("no");
                             }};
  EXPECT_EQ(OpenSqliteJournal(copy_.path(), {}, replay).status(), absl::InvalidArgumentError("no"));
  EXPECT_EQ(records, 1);
}

}  // namespace
}  // namespace ddprun
