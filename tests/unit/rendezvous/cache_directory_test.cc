// SPDX-License-Identifier: Apache-2.0
// Who must forget what, and which answers wait for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/store/cache_directory.h"

namespace ddprun {
namespace {

using Change = CacheDirectory::Change;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr StorePeer kA{1};
constexpr StorePeer kB{2};
const TimePoint kNow{std::chrono::hours(1)};

class CacheDirectoryTest : public ::testing::Test {
 protected:
  PendingWrite Write(const std::vector<std::string>& keys, Change change = Change::kValue) {
    forgets.clear();
    return directory.Write(keys, change, forgets);
  }

  CacheDirectory directory;
  std::vector<CacheDirectory::Forget> forgets;
};

TEST_F(CacheDirectoryTest, WhatNobodyKeepsIsSettledAtOnce) {
  EXPECT_EQ(Write({"k"}), kSettled);
  EXPECT_THAT(forgets, IsEmpty());
  EXPECT_EQ(directory.Read({"k"}), kSettled);
  EXPECT_EQ(directory.ReadAll(), kSettled);
}

TEST_F(CacheDirectoryTest, AWriteIsSettledWhenAllKeepersHaveForgotten) {
  ASSERT_TRUE(directory.Keep(kA, {"k", "other"}, {"v", "w"}));
  ASSERT_TRUE(directory.Keep(kB, {"k"}, {"v"}));
  const PendingWrite write = Write({"k"});
  ASSERT_NE(write, kSettled);
  ASSERT_EQ(forgets.size(), 2u);
  EXPECT_EQ(forgets[0].peer, kA);
  EXPECT_THAT(forgets[0].keys, ElementsAre("k"));
  EXPECT_EQ(forgets[1].peer, kB);
  EXPECT_EQ(directory.Read({"k"}), write) << "a reader must not know before the writer";
  EXPECT_EQ(directory.Read({"other"}), kSettled);
  EXPECT_THAT(directory.Forgot(kA, forgets[0].number), IsEmpty());
  EXPECT_THAT(directory.Forgot(kB, forgets[1].number), ElementsAre(write));
  EXPECT_EQ(directory.Read({"k"}), kSettled);
  EXPECT_EQ(Write({"k"}), kSettled) << "it was forgotten";
  EXPECT_EQ(directory.keepers(), 1u);
}

TEST_F(CacheDirectoryTest, WithKeepersOfNobodyKnowsWhatNothingIsSettled) {
  const PendingWrite recovery = directory.BeginRecovery({kA, kB}, kNow);
  EXPECT_EQ(directory.Read({"k"}), recovery);
  EXPECT_EQ(directory.ReadAll(), recovery);
  const PendingWrite write = Write({"k"});
  EXPECT_NE(write, kSettled);
  EXPECT_THAT(forgets, IsEmpty()) << "there is no stream to say it on";
  EXPECT_THAT(directory.Drop(kA), IsEmpty());
  EXPECT_THAT(directory.Drop(kB), ElementsAre(recovery, write));
  EXPECT_EQ(directory.Read({"k"}), kSettled);
}

TEST_F(CacheDirectoryTest, WhoDoesNotComeBackIsDoubtedForAsLongAsItTrusts) {
  const PendingWrite recovery = directory.BeginRecovery({kA}, kNow);
  EXPECT_EQ(directory.NextDeadline(), kNow + kKeepTrust);
  EXPECT_THAT(directory.Tick(kNow + kKeepTrust - std::chrono::milliseconds(1)), IsEmpty());
  EXPECT_THAT(directory.Tick(kNow + kKeepTrust), ElementsAre(recovery));
  EXPECT_EQ(Write({"k"}), kSettled);
}

TEST_F(CacheDirectoryTest, AnotherRoundEndsAllDoubt) {
  const PendingWrite recovery = directory.BeginRecovery({kA}, kNow);
  EXPECT_THAT(directory.Clear(), ElementsAre(recovery));
  EXPECT_EQ(directory.Read({"k"}), kSettled);
}

TEST_F(CacheDirectoryTest, WhoKeepsThatAKeyExistsNeedNotForgetItForAnotherValue) {
  ASSERT_TRUE(directory.Keep(kA, {"k"}, {}));
  EXPECT_EQ(Write({"k"}, Change::kValue), kSettled);
  EXPECT_NE(Write({"k"}, Change::kDeleted), kSettled);
}

TEST_F(CacheDirectoryTest, AValueIsMoreThanExistence) {
  ASSERT_TRUE(directory.Keep(kA, {"k"}, {"v"}));
  ASSERT_TRUE(directory.Keep(kA, {"k"}, {}));
  EXPECT_NE(Write({"k"}, Change::kValue), kSettled);
}

// Otherwise one could see the second key's new value and then, in a cache, the first one's old.
TEST_F(CacheDirectoryTest, AllKeysOfAnUnsettledWriteAreUnsettled) {
  ASSERT_TRUE(directory.Keep(kA, {"k"}, {"v"}));
  const PendingWrite both = Write({"k", "m"});
  EXPECT_EQ(directory.Read({"m"}), both);
  const PendingWrite after = Write({"m", "n"});
  EXPECT_THAT(forgets, IsEmpty());
  EXPECT_EQ(directory.Read({"n"}), after);
  EXPECT_THAT(directory.Forgot(kA, 1), ElementsAre(both, after));
  EXPECT_EQ(directory.ReadAll(), kSettled);
}

TEST_F(CacheDirectoryTest, AReadOfSeveralUnsettledKeysWaitsForAll) {
  ASSERT_TRUE(directory.Keep(kA, {"k"}, {"v"}));
  ASSERT_TRUE(directory.Keep(kB, {"m"}, {"v"}));
  const PendingWrite k = Write({"k"});
  const PendingWrite m = Write({"m"});
  const PendingWrite read = directory.Read({"k", "m"});
  const PendingWrite all = directory.ReadAll();
  EXPECT_THAT(directory.Forgot(kA, 1), ElementsAre(k));
  EXPECT_THAT(directory.Forgot(kB, 1), ElementsAre(m, read, all));
}

TEST_F(CacheDirectoryTest, OneNumberSaysAllBeforeIt) {
  ASSERT_TRUE(directory.Keep(kA, {"k", "m"}, {"v", "v"}));
  const PendingWrite k = Write({"k"});
  const PendingWrite m = Write({"m"});
  EXPECT_EQ(forgets.at(0).number, 2u);
  EXPECT_THAT(directory.Forgot(kA, 2), ElementsAre(k, m));
}

TEST_F(CacheDirectoryTest, WhatALostNodeKeepsIsUnsettledUntilItsTrustIsOver) {
  ASSERT_TRUE(directory.Keep(kA, {"k", "m"}, {"v", "v"}));
  const PendingWrite before = Write({"k"});
  directory.Gone(kA, kNow);
  EXPECT_EQ(directory.NextDeadline(), kNow + kKeepTrust);
  const PendingWrite after = Write({"m"});
  EXPECT_THAT(forgets, IsEmpty()) << "nobody can be asked";
  EXPECT_THAT(directory.Tick(kNow + kKeepTrust - Duration(1)), IsEmpty());
  EXPECT_THAT(directory.Tick(kNow + kKeepTrust), ElementsAre(before, after));
  EXPECT_EQ(directory.NextDeadline(), std::nullopt);
}

TEST_F(CacheDirectoryTest, ANodeThatBeginsAnewKeepsNothing) {
  ASSERT_TRUE(directory.Keep(kA, {"k", "m"}, {"v", "v"}));
  const PendingWrite write = Write({"k"});
  directory.Gone(kA, kNow);
  EXPECT_THAT(directory.Drop(kA), ElementsAre(write));
  EXPECT_EQ(Write({"m"}), kSettled);
  EXPECT_EQ(directory.keepers(), 0u);
  EXPECT_THAT(directory.Tick(kNow + kKeepTrust), IsEmpty());
}

TEST_F(CacheDirectoryTest, LimitsHold) {
  CacheDirectory small({.keepers_max = 3, .keys_max = 2, .bytes_max = 10});
  EXPECT_TRUE(small.Keep(kA, {"1", "2"}, {}));
  EXPECT_FALSE(small.Keep(kA, {"3"}, {})) << "keys of one node";
  EXPECT_FALSE(small.Keep(kB, {"3"}, {"1234567890"})) << "bytes";
  EXPECT_TRUE(small.Keep(kB, {"3"}, {"123456789"}));
  EXPECT_FALSE(small.Keep(StorePeer{3}, {"4"}, {})) << "keepers of all nodes";
  std::vector<CacheDirectory::Forget> asked;
  small.Write({"3"}, Change::kValue, asked);
  EXPECT_TRUE(small.Keep(kB, {"3"}, {"123456789"})) << "what was forgotten makes room";
}

TEST_F(CacheDirectoryTest, ANewRoundSettlesAll) {
  ASSERT_TRUE(directory.Keep(kA, {"k"}, {"v"}));
  const PendingWrite write = Write({"k"});
  EXPECT_THAT(directory.Clear(), ElementsAre(write));
  EXPECT_THAT(directory.Forgot(kA, 1), IsEmpty()) << "an answer that comes late";
  ASSERT_TRUE(directory.Keep(kA, {"k"}, {"v"}));
  Write({"k"});
  EXPECT_EQ(forgets.at(0).number, 2u) << "numbers go on in a stream";
}

}  // namespace
}  // namespace ddprun
