// SPDX-License-Identifier: Apache-2.0
// The copies of a service's journal: what is acknowledged is in each that counts, whatever comes
// between.
#include "rendezvous/election/copy_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/election/held_copy.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = CopyKind;

constexpr TimePoint kBegin{std::chrono::hours(1)};

std::vector<Kind> KindsOf(const std::vector<CopyPiece>& pieces) {
  std::vector<Kind> kinds;
  for (const CopyPiece& piece : pieces) kinds.push_back(piece.kind);
  return kinds;
}

std::vector<Kind> TakeAll(CopySet& copies, CopySet::CopyId copy) {
  std::vector<Kind> kinds;
  while (copies.unsent(copy) > 0) {
    for (const Kind kind : KindsOf(copies.Take(copy, 1))) kinds.push_back(kind);
  }
  return kinds;
}

TEST(CopySetTest, WithoutACopyEachRecordIsSafe) {
  CopySet copies(/*is_empty=*/true);
  EXPECT_EQ(copies.Append("a", kBegin), 1u);
  EXPECT_EQ(copies.safe_record(), 1u);
  EXPECT_FALSE(copies.WantsSnapshot());
}

TEST(CopySetTest, ACopyFromTheBeginNeedsNoSnapshot) {
  CopySet copies(/*is_empty=*/true);
  const auto copy = copies.Add();
  EXPECT_FALSE(copies.WantsSnapshot());
  EXPECT_THAT(TakeAll(copies, copy), ElementsAre(Kind::kSnapshotEnd));
  copies.Acknowledge(copy, 0, kBegin);
  EXPECT_THAT(TakeAll(copies, copy), ElementsAre(Kind::kCounts));
  copies.Append("a", kBegin);
  EXPECT_EQ(copies.safe_record(), 0u);
  copies.Acknowledge(copy, 1, kBegin);
  EXPECT_EQ(copies.safe_record(), 1u);
}

TEST(CopySetTest, ALaterOneCountsOnceItHasASnapshot) {
  CopySet copies(/*is_empty=*/true);
  copies.Append("a", kBegin);
  const auto copy = copies.Add();
  EXPECT_TRUE(copies.WantsSnapshot());
  copies.Append("b", kBegin);
  EXPECT_EQ(copies.safe_record(), 2u);
  copies.Snapshot({"a and b"});
  copies.Append("c", kBegin);
  EXPECT_FALSE(copies.WantsSnapshot());
  EXPECT_THAT(TakeAll(copies, copy), ElementsAre(Kind::kParts, Kind::kSnapshotEnd, Kind::kRecords));
  EXPECT_EQ(copies.counting(), 0u);
  copies.Acknowledge(copy, 2, kBegin);
  EXPECT_EQ(copies.counting(), 1u);
  EXPECT_EQ(copies.safe_record(), 2u);
}

TEST(CopySetTest, AServiceThatWasPromotedGivesASnapshotFirst) {
  CopySet copies(/*is_empty=*/false);
  const auto copy = copies.Add();
  EXPECT_TRUE(copies.WantsSnapshot());
  EXPECT_THAT(copies.Take(copy, 1), IsEmpty());
}

TEST(CopySetTest, OneThatTakesNothingIsGivenUp) {
  CopySet copies(/*is_empty=*/true);
  const auto hung = copies.Add();
  const auto good = copies.Add();
  for (const auto copy : {hung, good}) copies.Acknowledge(copy, 0, kBegin);
  copies.Append("a", kBegin);
  copies.Acknowledge(good, 1, kBegin);
  EXPECT_EQ(copies.safe_record(), 0u);
  ASSERT_TRUE(copies.NextDeadline().has_value());
  EXPECT_THAT(copies.GiveUpOverdue(*copies.NextDeadline() - milliseconds(1)), IsEmpty());
  EXPECT_THAT(copies.GiveUpOverdue(*copies.NextDeadline()), ElementsAre(hung));
  EXPECT_EQ(copies.safe_record(), 1u);
  EXPECT_FALSE(copies.Has(hung));
  EXPECT_FALSE(copies.NextDeadline().has_value());
}

TEST(CopySetTest, OneThatIsSlowIsNot) {
  CopySet copies(/*is_empty=*/true);
  const auto copy = copies.Add();
  copies.Acknowledge(copy, 0, kBegin);
  for (int i = 0; i < 4; ++i) copies.Append("a", kBegin);
  TimePoint now = kBegin;
  for (std::uint64_t record = 1; record <= 4; ++record) {
    now += kCopyTimeout - milliseconds(1);
    EXPECT_THAT(copies.GiveUpOverdue(now), IsEmpty());
    copies.Acknowledge(copy, record, now);
  }
}

TEST(CopySetTest, OneWhoseRecordsPileUpIsGivenUp) {
  CopySet copies(/*is_empty=*/false);
  const auto copy = copies.Add();
  copies.Snapshot({std::string(kJournalQueueBytesMax + 1, 'x')});
  EXPECT_THAT(copies.GiveUpOverdue(kBegin), ElementsAre(copy));
}

TEST(CopySetTest, TheNextLeaderHasEverything) {
  CopySet copies(/*is_empty=*/true);
  const auto behind = copies.Add();
  const auto whole = copies.Add();
  for (const auto copy : {behind, whole}) copies.Acknowledge(copy, 0, kBegin);
  copies.Append("a", kBegin);
  EXPECT_FALSE(copies.HandOver().has_value());
  copies.Acknowledge(whole, 1, kBegin);
  EXPECT_EQ(copies.HandOver(), whole);
  EXPECT_EQ(TakeAll(copies, whole).back(), Kind::kLead);
}

TEST(HeldCopyTest, AnOldCopyStaysUntilTheNewOneIsWhole) {
  HeldCopy held;
  const auto records = [&held] {
    std::vector<std::string> found;
    const auto add = [&found](absl::string_view record) {
      found.emplace_back(record);
      return absl::OkStatus();
    };
    EXPECT_TRUE(held.Replay({.on_part = add, .on_record = add}).ok());
    return found;
  };
  const auto take = [&held](Kind kind, const std::string& text, std::uint64_t record) {
    const std::string value = text.empty() ? "" : CutIntoValues({text}, 100).front();
    return held.Add({kind, value, record, 16}, kBegin);
  };
  EXPECT_EQ(*take(Kind::kSnapshotEnd, "", 0), std::optional<std::uint64_t>(0));
  EXPECT_EQ(*take(Kind::kRecords, "a", 1), std::optional<std::uint64_t>(1));
  ASSERT_TRUE(take(Kind::kCounts, "", 0).ok());
  EXPECT_TRUE(held.counts());
  held.OnConnection();
  EXPECT_FALSE(held.counts());
  ASSERT_TRUE(take(Kind::kParts, "a and b", 0).ok());
  EXPECT_THAT(records(), ElementsAre("a"));
  ASSERT_TRUE(take(Kind::kSnapshotEnd, "", 7).ok());
  EXPECT_THAT(records(), ElementsAre("a and b"));
  ASSERT_TRUE(take(Kind::kRecords, "c", 8).ok());
  EXPECT_THAT(records(), ElementsAre("a and b", "c"));
}

TEST(HeldCopyTest, OneThatSleptMayHaveBeenGivenUp) {
  HeldCopy held;
  ASSERT_TRUE(held.Add({Kind::kSnapshotEnd, "", 0, 16}, kBegin).ok());
  EXPECT_TRUE(held.Add({}, kBegin + kCopyTimeout - milliseconds(1)).ok());
  EXPECT_FALSE(held.Add({}, kBegin + 2 * kCopyTimeout).ok());
}

TEST(HeldCopyTest, DamageIsAnError) {
  HeldCopy held;
  EXPECT_EQ(held.Add({Kind::kRecords, "?", 1, 16}, kBegin).status().code(),
            absl::StatusCode::kDataLoss);
}

// ---- A service and its copies, at random

// The connection to one copy: what is under way in both directions.
struct Link {
  CopySet::CopyId id = 0;
  std::vector<CopyMessage> down;
  std::vector<std::uint64_t> up;
};

class RandomCopies {
 public:
  explicit RandomCopies(std::uint64_t seed) : random_(seed), service_(true, 40) {
    held_.resize(3);
    links_.resize(3);
  }

  // Whether a copy that has lost its connection, and was complete as far as it knows, lacks what
  // was acknowledged meanwhile.
  bool OneIsBehindAndCannotTell() {
    for (std::size_t copy = 0; copy < held_.size(); ++copy) {
      if (links_[copy].id == 0 && held_[copy].counts() && LastOf(copy) < acknowledged_) return true;
    }
    return false;
  }

  // The sentence of the first thing that is wrong; empty: none.
  std::string Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      Step();
      acknowledged_ = std::max(acknowledged_, service_.safe_record());
      for (std::size_t copy = 0; copy < held_.size(); ++copy) {
        if (std::string wrong = Check(copy); !wrong.empty())
          return absl::StrCat("step ", i, ", copy ", copy, ": ", wrong);
      }
    }
    return "";
  }

 private:
  std::size_t Pick(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }

  void Step() {
    now_ += milliseconds(Pick(30));
    const std::size_t copy = Pick(held_.size());
    Link& link = links_[copy];
    switch (Pick(12)) {
      case 0:
      case 1:
        service_.Append(absl::StrCat(service_.last_record() + 1), now_);
        break;
      case 2:
        if (link.id == 0) {
          link = {service_.Add(), {}, {}};
          held_[copy].OnConnection();
        }
        break;
      case 3:
        if (service_.WantsSnapshot())
          service_.Snapshot({absl::StrCat("1-", service_.last_record())});
        break;
      case 4:
      case 8:
        Send(link);
        break;
      case 5:
      case 9:
      case 10:
        Deliver(copy);
        break;
      case 6:
      case 7:
        if (!link.up.empty()) {
          service_.Acknowledge(link.id, link.up.front(), now_);
          link.up.erase(link.up.begin());
        }
        break;
      default:
        Trouble(copy);
    }
    for (const CopySet::CopyId id : service_.GiveUpOverdue(now_)) {
      for (std::size_t i = 0; i < links_.size(); ++i) {
        if (links_[i].id != id) continue;
        held_[i].GivenUp();
        links_[i] = {};
      }
    }
  }

  void Send(Link& link) {
    const std::vector<CopyPiece> pieces = service_.Take(link.id, 1 + Pick(8));
    std::vector<std::string> bytes;
    for (const CopyPiece& piece : pieces) {
      if (piece.bytes != nullptr) bytes.push_back(*piece.bytes);
    }
    if (pieces.empty()) return;
    CopyMessage message{pieces.back().kind, "", 0, 16};
    for (std::string& value : CutIntoValues(bytes, 6)) {
      message.value = std::move(value);
      link.down.push_back(message);
    }
    if (bytes.empty()) link.down.push_back(message);
    link.down.back().record = pieces.back().record;
  }

  void Deliver(std::size_t copy) {
    Link& link = links_[copy];
    if (link.down.empty()) return;
    const auto acknowledge = held_[copy].Add(link.down.front(), now_);
    link.down.erase(link.down.begin());
    if (!acknowledge.ok()) return Break(copy, /*knows=*/true);
    if (acknowledge->has_value()) link.up.push_back(**acknowledge);
  }

  // The connection breaks, or the service closes it.
  void Trouble(std::size_t copy) {
    if (links_[copy].id != 0 && Pick(6) == 0) Break(copy, Pick(2) == 0);
  }

  void Break(std::size_t copy, bool knows) {
    service_.Remove(links_[copy].id);
    if (knows) held_[copy].GivenUp();
    links_[copy] = {};
  }

  std::uint64_t LastOf(std::size_t copy, std::string* wrong = nullptr) const {
    std::uint64_t last = 0;
    const auto complain = [wrong](std::string sentence) {
      if (wrong != nullptr) *wrong = std::move(sentence);
    };
    const auto on_part = [&](absl::string_view part) {
      if (!absl::SimpleAtoi(part.substr(2), &last)) complain("a part that is none");
      return absl::OkStatus();
    };
    const auto on_record = [&](absl::string_view record) {
      std::uint64_t number = 0;
      if (!absl::SimpleAtoi(record, &number) || number != last + 1)
        complain(absl::StrCat("record ", std::string(record), " after ", last));
      last = number;
      return absl::OkStatus();
    };
    held_[copy].Replay({.on_part = on_part, .on_record = on_record}).IgnoreError();
    return last;
  }

  // What it holds is what was recorded, from the begin; and while it is one of the service's
  // copies, all that was acknowledged.
  std::string Check(std::size_t copy) {
    std::string wrong;
    const std::uint64_t last = LastOf(copy, &wrong);
    if (!wrong.empty()) return wrong;
    const bool is_one = links_[copy].id != 0 && service_.Has(links_[copy].id);
    if (is_one && held_[copy].counts() && last < acknowledged_)
      return absl::StrCat("has ", last, " of ", acknowledged_, " acknowledged records");
    return "";
  }

  std::mt19937_64 random_;
  TimePoint now_ = kBegin;
  CopySet service_;
  std::vector<HeldCopy> held_;
  std::vector<Link> links_;
  std::uint64_t acknowledged_ = 0;
};

TEST(CopySetRandomTest, WhatIsAcknowledgedIsInEachCopyThatCounts) {
  const char* const seeds = std::getenv("DDPRUN_FAILOVER_SEEDS");
  const std::uint64_t last = seeds != nullptr ? std::strtoull(seeds, nullptr, 10) : 500;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    ASSERT_EQ(RandomCopies(seed).Run(400), "") << "seed " << seed;
  }
}

// Why a majority of nodes at a copy is no reason to lead: STANDBY.md.
TEST(CopySetRandomTest, ACopyCannotTellThatItWasGivenUp) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RandomCopies copies(seed);
    for (int step = 0; step < 400; ++step) {
      ASSERT_EQ(copies.Run(1), "");
      if (copies.OneIsBehindAndCannotTell()) return;
    }
  }
  FAIL() << "a quorum of nodes might do: read STANDBY.md again";
}

}  // namespace
}  // namespace ddprun
