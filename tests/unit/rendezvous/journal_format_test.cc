// SPDX-License-Identifier: Apache-2.0
// What is read back of a journal that was torn, damaged, or never was one: what was written up to a
// point, or an error, and never anything else.
#include "rendezvous/journal/journal_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSalt = 0x0123456789abcdef;
constexpr std::uint64_t kBoot = 7;
constexpr std::uint64_t kNextBoot = 8;

class TextSource final : public JournalSource {
 public:
  explicit TextSource(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string name() const override { return "/folder/journal"; }
  std::uint64_t size() const override { return bytes_.size(); }
  absl::Status Read(std::uint64_t offset, std::size_t count, char* to) const override {
    EXPECT_LE(offset + count, bytes_.size());
    largest = std::max(largest, count);
    std::memcpy(to, bytes_.data() + offset, count);
    return absl::OkStatus();
  }

  mutable std::size_t largest = 0;

 private:
  const std::string bytes_;
};

// A journal as a service writes it, with the places of its entries.
class Written {
 public:
  explicit Written(const std::vector<std::string>& parts = {"part 1", "part 2"})
      : bytes(JournalHeader(kSalt)) {
    for (const std::string& part : parts) Add(JournalEntry::kPart, part);
    Mark();
    snapshot_end = bytes.size();
  }

  void Record(const std::string& payload) {
    Add(JournalEntry::kRecord, payload);
    records.push_back(payload);
    ends.push_back(bytes.size());
  }
  void Mark(std::uint64_t boot = kBoot) {
    on_disk = bytes.size();
    Add(JournalEntry::kMark, JournalMark(bytes.size(), boot));
  }
  // How many records are whole in the first `size` bytes.
  std::size_t RecordsIn(std::size_t size) const {
    return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), size) -
                                    ends.begin());
  }

  std::string bytes;
  std::size_t snapshot_end = 0;
  std::size_t on_disk = 0;  // up to the last mark
  std::vector<std::string> records;
  std::vector<std::size_t> ends;

 private:
  void Add(JournalEntry kind, const std::string& payload) {
    AddJournalEntry(kind, payload, kSalt, bytes.size(), bytes);
  }
};

struct Found {
  absl::Status status;
  std::vector<std::string> parts;
  std::vector<std::string> records;
  std::uint64_t end = 0;
  std::size_t largest_read = 0;
};

Found ReadBack(const std::string& bytes, std::uint64_t boot = kBoot) {
  Found found;
  const TextSource source(bytes);
  const JournalReplay replay{[&](absl::string_view part) {
                               found.parts.emplace_back(part);
                               return absl::OkStatus();
                             },
                             [&](absl::string_view record) {
                               found.records.emplace_back(record);
                               return absl::OkStatus();
                             }};
  const auto contents = ReadJournal(source, boot, replay);
  found.status = contents.status();
  if (contents.ok()) found.end = contents->end;
  found.largest_read = source.largest;
  return found;
}

bool IsPrefix(const std::vector<std::string>& some, const std::vector<std::string>& all) {
  return some.size() <= all.size() && std::equal(some.begin(), some.end(), all.begin());
}

// Marks between the records, and records after the last one.
Written Sample() {
  Written written;
  for (int i = 0; i < 8; ++i) {
    written.Record("record " + std::to_string(i) + std::string(static_cast<std::size_t>(i), 'x'));
    if (i == 2 || i == 5) written.Mark();
  }
  return written;
}

TEST(JournalFormatTest, ReadsWhatWasWritten) {
  Written written({"first", "", std::string(3'000'000, 's')});
  written.Record("a");
  written.Record("");
  written.Mark();
  written.Record(std::string(2'000'000, '\0'));
  const Found found = ReadBack(written.bytes);
  ASSERT_TRUE(found.status.ok()) << found.status;
  EXPECT_EQ(found.parts, (std::vector<std::string>{"first", "", std::string(3'000'000, 's')}));
  EXPECT_EQ(found.records, written.records);
  EXPECT_EQ(found.end, written.bytes.size());
}

TEST(JournalFormatTest, TheFormatOnDiskDoesNotChangeUnnoticed) {
  std::string bytes = JournalHeader(1);
  AddJournalEntry(JournalEntry::kRecord, "ab", 1, bytes.size(), bytes);
  // The checksums by Python's zlib.crc32.
  const unsigned char expected[] = {'d',  'd',  'p',  'r',  'u', 'n', 'J', '\n',  //
                                    1,    0,    0,    0,    0,   0,   0,   0,     //
                                    1,    0,    0,    0,    0,   0,   0,   0,     //
                                    0x42, 0x98, 0xce, 0xd1,                       //
                                    2,    0,    0,    0,    2,   0,   0,   0,     //
                                    0x6d, 0x48, 0x83, 0x9e,                       //
                                    0xb5, 0x03, 0xf7, 0xac, 'a', 'b'};
  ASSERT_EQ(bytes.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
}

// A process that is killed leaves the beginning of what it wrote.
TEST(JournalFormatTest, EveryBeginningOfAJournalGivesTheRecordsThatAreWholeInIt) {
  const Written written = Sample();
  for (const std::uint64_t boot : {kBoot, kNextBoot}) {
    for (std::size_t size = 0; size <= written.bytes.size(); ++size) {
      const Found found = ReadBack(written.bytes.substr(0, size), boot);
      if (size < written.snapshot_end) {
        EXPECT_FALSE(found.status.ok()) << size;
        EXPECT_TRUE(found.records.empty()) << size;
        continue;
      }
      ASSERT_TRUE(found.status.ok()) << size << ": " << found.status;
      ASSERT_EQ(found.records.size(), written.RecordsIn(size)) << size;
      ASSERT_TRUE(IsPrefix(found.records, written.records)) << size;
      ASSERT_LE(found.end, size);
    }
  }
}

TEST(JournalFormatTest, AnEndOfZeroesIsCutOff) {
  const Written written = Sample();
  for (std::size_t size = written.snapshot_end; size <= written.bytes.size(); ++size) {
    for (const std::size_t zeroes : {1u, 15u, 16u, 17u, 4096u}) {
      const Found found = ReadBack(written.bytes.substr(0, size) + std::string(zeroes, '\0'));
      ASSERT_TRUE(found.status.ok()) << size << ": " << found.status;
      // An entry may end in zeroes itself; then it is whole.
      ASSERT_GE(found.records.size(), written.RecordsIn(size));
      ASSERT_TRUE(IsPrefix(found.records, written.records));
    }
  }
}

// While the machine has not crashed, only the end can be unfinished.
TEST(JournalFormatTest, EveryFlippedBitIsAnErrorOrInTheLastEntry) {
  const Written written = Sample();
  const std::size_t last_entry = written.ends[written.ends.size() - 2];
  for (std::size_t bit = 0; bit < written.bytes.size() * 8; ++bit) {
    std::string bytes = written.bytes;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const Found found = ReadBack(bytes);
    ASSERT_TRUE(IsPrefix(found.records, written.records)) << bit;
    if (bit / 8 < last_entry) {
      ASSERT_FALSE(found.status.ok()) << bit;
      ASSERT_THAT(std::string(found.status.message()), HasSubstr("/folder/journal"));
    } else {
      ASSERT_TRUE(found.status.ok()) << bit << ": " << found.status;
      ASSERT_EQ(found.records.size(), written.records.size() - 1);
    }
  }
}

// After a crash of the machine, what no mark names may be missing anywhere.
TEST(JournalFormatTest, AfterACrashOfTheMachineAFlippedBitEndsWhatWasNotOnDisk) {
  const Written written = Sample();
  for (std::size_t bit = 0; bit < written.bytes.size() * 8; ++bit) {
    std::string bytes = written.bytes;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const Found found = ReadBack(bytes, kNextBoot);
    ASSERT_TRUE(IsPrefix(found.records, written.records)) << bit;
    if (bit / 8 < written.on_disk) {
      ASSERT_FALSE(found.status.ok()) << bit;
    } else {
      ASSERT_TRUE(found.status.ok()) << bit << ": " << found.status;
      ASSERT_GE(found.records.size(), written.RecordsIn(written.on_disk));
    }
  }
}

TEST(JournalFormatTest, ACrashOfTheMachineThatLosesAnyPagesGivesABeginningWithAllThatWasOnDisk) {
  constexpr std::size_t kPage = 64;  // small, for many of them
  Written written;
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    written.Record(std::string(random() % 100, static_cast<char>('a' + i % 26)));
    if (i == 20 || i == 35) written.Mark();
  }
  int shortened = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = written.bytes;
    for (std::size_t page = 0; page < bytes.size(); page += kPage) {
      if (random() % 4 != 0) continue;
      for (std::size_t i = std::max(page, written.on_disk); i < page + kPage; ++i) {
        if (i < bytes.size()) bytes[i] = '\0';
      }
    }
    const Found found = ReadBack(bytes, kNextBoot);
    ASSERT_TRUE(found.status.ok()) << found.status;
    ASSERT_TRUE(IsPrefix(found.records, written.records));
    ASSERT_GE(found.records.size(), written.RecordsIn(written.on_disk));
    if (found.records.size() < written.records.size()) ++shortened;
  }
  EXPECT_GT(shortened, 1000);
}

TEST(JournalFormatTest, DamageIsNamedWithItsOffset) {
  Written written;
  written.Record("one");
  const std::size_t second = written.bytes.size();
  written.Record("two");
  written.Record("three");
  written.bytes[second + 16] ^= 1;
  const Found found = ReadBack(written.bytes);
  EXPECT_EQ(found.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(found.status.message()),
              HasSubstr("the journal /folder/journal is damaged at offset " +
                        std::to_string(second) + ": "));
  EXPECT_THAT(std::string(found.status.message()), HasSubstr("move it away"));
}

TEST(JournalFormatTest, ALengthThatWasDamagedDoesNotHideWhatFollows) {
  Written written;
  written.Record("one");
  const std::size_t second = written.bytes.size();
  written.Record("two");
  written.Record("three");
  for (const std::size_t byte : {second + 4, second + 5, second + 6, second + 7}) {
    std::string bytes = written.bytes;
    bytes[byte] = '\x7f';
    EXPECT_EQ(ReadBack(bytes).status.code(), absl::StatusCode::kDataLoss);
  }
}

TEST(JournalFormatTest, AJournalInsideARecordIsNotTakenForOne) {
  Written written;
  written.Record("one");
  Written inside;
  inside.Record("x");
  inside.Mark();
  written.Record(inside.bytes + std::string(100, 'y'));
  // The record was not finished: nothing in it counts as a good entry after a bad one.
  const Found found = ReadBack(written.bytes.substr(0, written.bytes.size() - 50));
  ASSERT_TRUE(found.status.ok()) << found.status;
  EXPECT_EQ(found.records, std::vector<std::string>{"one"});
}

TEST(JournalFormatTest, OtherVersionsAndOtherFilesAreNamed) {
  std::string other = JournalHeader(kSalt);
  EXPECT_EQ(ReadBack(other).status.code(), absl::StatusCode::kDataLoss) << "no snapshot";
  EXPECT_THAT(std::string(ReadBack("").status.message()), HasSubstr("is not a journal of ddprun"));
  EXPECT_THAT(std::string(ReadBack(std::string(100, 'x')).status.message()),
              HasSubstr("is not a journal of ddprun"));
  other[8] = 2;
  EXPECT_EQ(ReadBack(other).status.code(), absl::StatusCode::kDataLoss) << "the checksum is wrong";
  // An entry's third number is the checksum of its payload.
  std::string entry;
  AddJournalEntry(JournalEntry::kRecord, other.substr(0, 24), kSalt, 0, entry);
  other.replace(24, 4, entry.substr(8, 4));
  const Found found = ReadBack(other);
  EXPECT_EQ(found.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(found.status.message()),
              HasSubstr("has format 2, and this ddprun reads"));
}

TEST(JournalFormatTest, EntriesInTheWrongPlaceAreDamage) {
  std::string record_first = JournalHeader(kSalt);
  AddJournalEntry(JournalEntry::kRecord, "r", kSalt, record_first.size(), record_first);
  EXPECT_EQ(ReadBack(record_first).status.code(), absl::StatusCode::kDataLoss);
  Written written;
  AddJournalEntry(JournalEntry::kPart, "p", kSalt, written.bytes.size(), written.bytes);
  EXPECT_EQ(ReadBack(written.bytes).status.code(), absl::StatusCode::kDataLoss);
}

TEST(JournalFormatTest, ACallbacksErrorEndsTheReading) {
  const TextSource source(Sample().bytes);
  int records = 0;
  const JournalReplay replay{[](absl::string_view) { return absl::OkStatus(); },
                             [&](absl::string_view) {
                               ++records;
                               return absl::InvalidArgumentError("no");
                             }};
  EXPECT_EQ(ReadJournal(source, kBoot, replay).status(), absl::InvalidArgumentError("no"));
  EXPECT_EQ(records, 1);
}

// Half of them begin well, so that the reader gets deep.
TEST(JournalFormatTest, AnyBytesAreReadInBoundedMemory) {
  std::mt19937_64 random(3);
  const std::string good = Sample().bytes;
  int read = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = random() % 2 == 0 ? good.substr(0, random() % good.size()) : "";
    const std::size_t more = random() % 300;
    for (std::size_t i = 0; i < more; ++i) {
      // Few different bytes, so that kinds and small lengths come up.
      bytes.push_back(static_cast<char>(random() % 3 == 0 ? random() % 256 : random() % 4));
    }
    const Found found = ReadBack(bytes, random() % 2 == 0 ? kBoot : kNextBoot);
    ASSERT_TRUE(IsPrefix(found.records, Sample().records));
    ASSERT_LE(found.largest_read, std::max<std::size_t>(bytes.size(), 1));
    if (found.status.ok()) ++read;
  }
  EXPECT_GT(read, 1000);
}

TEST(JournalFormatTest, ALengthIsNotBelievedBeforeItsChecksumIs) {
  // 8 MiB of zeroes behind an entry that claims nearly all of them.
  Written written;
  std::string entry;
  AddJournalEntry(JournalEntry::kRecord, "x", kSalt, written.bytes.size(), entry);
  entry[4] = entry[5] = '\xff';
  entry[6] = '\x7f';
  const Found found = ReadBack(written.bytes + entry + std::string(8u << 20, '\0'));
  ASSERT_TRUE(found.status.ok()) << found.status;
  EXPECT_LE(found.largest_read, std::size_t{1} << 20);
}

}  // namespace
}  // namespace ddprun
