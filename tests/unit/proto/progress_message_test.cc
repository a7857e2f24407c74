// SPDX-License-Identifier: Apache-2.0
#include "proto/progress_message.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(ProgressMessageTest, EveryFieldComesBack) {
  ProgressMessage message;
  message.step = 12;
  message.steps = 400;
  message.epoch = 3;
  message.rate = 310.5;
  message.unit = "images";
  message.section = "all_reduce 4711 = x";
  message.loss = -0.5;
  message.accuracy = 0.9375;
  message.gpu_memory = 1LL << 40;
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  EXPECT_EQ(ParseProgress("LOSS=nan"), ParseProgress("LOSS=-inf"));
  EXPECT_FALSE(ParseProgress("LOSS=low").loss);
  EXPECT_FALSE(ParseProgress("ACCURACY=93").accuracy) << "a share, not a percentage";
  EXPECT_EQ(ParseProgress(ToText({})), ProgressMessage{});
}

TEST(ProgressMessageTest, WhatConcernsRoundsComesBack) {
  ProgressMessage message;
  message.can_be_kept = true;
  message.left_round = 18446744073709551615u;
  message.error = "Connection closed by peer = x";
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  message.error = std::string(2000, 'e') + "\nSTEP=9";
  const ProgressMessage cut = ParseProgress(ToText(message));
  EXPECT_EQ(cut.error->size(), kProgressErrorBytesMax);
  EXPECT_FALSE(cut.step);
  EXPECT_FALSE(*ParseProgress("KEEP=0").can_be_kept);
  EXPECT_FALSE(ParseProgress("LEFT=-1").left_round);
}

TEST(ProgressMessageTest, WhatConcernsNoticesComesBack) {
  ProgressMessage message;
  message.saved_notice = 18446744073709551615u;
  EXPECT_EQ(ToText(message), "SAVED=18446744073709551615\n");
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  EXPECT_FALSE(ParseProgress("SAVED=-1").saved_notice);
  Merge(ParseProgress("STEP=2"), message);
  EXPECT_TRUE(message.saved_notice);
}

TEST(ProgressMessageTest, TimesComeBack) {
  ProgressMessage message;
  message.times.emplace();
  (*message.times)[TimeClass::kTraining] = std::chrono::microseconds(12'345'678);
  (*message.times)[TimeClass::kStart] = std::chrono::microseconds(1);
  message.doing = TimeClass::kWaiting;
  message.slow = 2.5;
  message.damaged = 1;
  EXPECT_EQ(ToText(message),
            "TIMES=training 12.345678,start 0.000001\nDOING=waiting\nSLOW=2.5\nDAMAGED=1\n");
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  const ProgressMessage odd =
      ParseProgress("TIMES=data 1,sleeping 4,start -1,waiting,training 1e300\nDOING=sleeping");
  EXPECT_EQ((*odd.times)[TimeClass::kData], std::chrono::seconds(1));
  EXPECT_EQ((*odd.times)[TimeClass::kTraining], RankTime::kMax);
  EXPECT_EQ(odd.times->Sum(), RankTime::kMax + std::chrono::seconds(1));
  EXPECT_EQ(odd.doing, std::nullopt);
}

TEST(ProgressMessageTest, AReasonBelongsToItsRound) {
  ProgressMessage message = ParseProgress("KEEP=1\nLEFT=3\nERROR=a");
  Merge(ParseProgress("STEP=2"), message);
  EXPECT_EQ(message.error, "a");
  Merge(ParseProgress("LEFT=4"), message);
  EXPECT_EQ(message.left_round, 4u);
  EXPECT_EQ(message.error, std::nullopt);
  EXPECT_EQ(message.can_be_kept, true);
}

TEST(ProgressMessageTest, WhereItWaitsComesBackAndIsNoSignOfLife) {
  ProgressMessage message;
  message.goes_on = false;
  message.place.emplace();
  message.place->waits = Collective{"0", 57, "all_reduce", 4194304, "float32"};
  message.place->last = {{"0", 56, "all_reduce"}, {"ddprun/group/pipeline/0", 3, "broadcast"}};
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  message.place->waits = Collective{"0", 0, "recv"};
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  message.place = CollectivePlace{};
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  message.goes_on = true;
  message.step = 3;
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  EXPECT_TRUE(ParseProgress("").goes_on);
  EXPECT_EQ(ToText(ParseProgress("WAITS=1 all_reduce 4 a\tb 0")), "WAITS=1 all_reduce 4 a_b 0\n");
}

TEST(ProgressMessageTest, APlaceThatCannotBeReadIsNone) {
  for (const char* text :
       {"WAITS=x all_reduce 4 f 0", "WAITS=1 all_reduce 4 f", "WAITS=1 2 3 4 5 6", "LAST=1 x",
        "LAST=-1 all_reduce 0", "WAITS=-2 a 4 f 0"}) {
    const ProgressMessage message = ParseProgress(text);
    EXPECT_EQ(message.place, CollectivePlace{}) << text;
    EXPECT_FALSE(message.goes_on) << text;
  }
  std::string many;
  for (int i = 0; i < 100; ++i) many += "LAST=1 " + std::string(200, 'n') + " g\n";
  const CollectivePlace place = *ParseProgress(many).place;
  EXPECT_EQ(place.last.size(), kCollectivesDoneMax);
  EXPECT_EQ(place.last[0].name.size(), kCollectiveNameBytesMax);
}

TEST(ProgressMessageTest, APlaceHoldsUntilTheNextMessage) {
  ProgressMessage message = ParseProgress("WAITS=1 all_reduce 4 float32 0");
  Merge(ParseProgress("STEP=2"), message);
  EXPECT_EQ(message, ParseProgress("STEP=2"));
  Merge(ParseProgress("WAITS="), message);
  EXPECT_EQ(message, ParseProgress("STEP=2\nWAITS="));
}

TEST(ProgressMessageTest, OneThatMovesOnHasNoPlaceAndReportsNoProgress) {
  ProgressMessage moves;
  moves.goes_on = false;
  moves.moves_on = true;
  EXPECT_EQ(ToText(moves), "WAITS=-\n");
  EXPECT_EQ(ParseProgress("WAITS=-"), moves);
  ProgressMessage message = ParseProgress("WAITS=1 all_reduce 4 float32 0");
  Merge(moves, message);
  EXPECT_EQ(message, moves);
  Merge(ParseProgress("WAITS=1 all_reduce 4 float32 0"), message);
  EXPECT_EQ(message, ParseProgress("WAITS=1 all_reduce 4 float32 0"));
}

TEST(ProgressMessageTest, IsWrittenByHandInOneLine) {
  EXPECT_EQ(ParseProgress("STEP=7").step, 7);
  EXPECT_EQ(ParseProgress("WATCHDOG=1\nSTEP=7\nnoise\n").step, 7);
}

TEST(ProgressMessageTest, WhatCannotBeReadIsNotThere) {
  for (const char* text : {"STEP=", "STEP=-1", "STEP=seven", "STEP=1e99", "RATE=nan", "RATE=-1",
                           "RATE=inf", "EPOCH=0x7", "=", "step=7", ""}) {
    EXPECT_EQ(ParseProgress(text), ProgressMessage{}) << text;
  }
  EXPECT_EQ(ParseProgress("SECTION=" + std::string(5000, 'x')).section->size(),
            kProgressNameBytesMax);
}

TEST(ProgressMessageTest, ThatNoticesAreReadIsNoProgress) {
  const ProgressMessage message = ParseProgress("NOTICES=1\n");
  EXPECT_TRUE(message.hears_notices && OnlyHears(message));
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  EXPECT_FALSE(ParseProgress("NOTICES=0").hears_notices);
  EXPECT_FALSE(OnlyHears(ParseProgress("")) || OnlyHears(ParseProgress("NOTICES=1\nSTEP=1")));
  // Another thread says where it waits, which stays as it was.
  ProgressMessage waits = ParseProgress("WAITS=1 all_reduce 4 float32 0\nSTEP=3");
  const ProgressMessage before = waits;
  Merge(message, waits);
  EXPECT_TRUE(waits.hears_notices);
  EXPECT_EQ(waits.place, before.place);
  ProgressMessage first = message;
  Merge(before, first);
  EXPECT_EQ(first, waits);
}

TEST(ProgressMessageTest, APauseLastsUntilTheNextSignOfProgress) {
  ProgressMessage message = ParseProgress("STEP=9\nWATCH=0\n");
  EXPECT_TRUE(message.pauses && message.goes_on);
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  EXPECT_FALSE(ParseProgress("WATCH=1").pauses || ParseProgress("STEP=9").pauses);
  Merge(ParseProgress("WAITS="), message);
  Merge(ParseProgress("NOTICES=1"), message);
  EXPECT_TRUE(message.pauses);
  Merge(ParseProgress("SECTION=data"), message);
  EXPECT_FALSE(message.pauses);
  Merge(ParseProgress("WATCH=0"), message);
  EXPECT_TRUE(message.pauses);
}

TEST(ProgressMessageTest, APauseEndsAWaitAndKeepsTheLastCollective) {
  ProgressMessage message = ParseProgress("WAITS=57 all_reduce 4 float32 0\nLAST=56 all_reduce 0");
  Merge(ParseProgress("WATCH=0"), message);
  EXPECT_EQ(message.place, ParseProgress("WAITS=\nLAST=56 all_reduce 0").place);
  Merge(ParseProgress("STEP=9"), message);
  EXPECT_FALSE(message.place.has_value());
}

TEST(ProgressMessageTest, LaterWordsAddToEarlierOnes) {
  ProgressMessage message = ParseProgress("STEP=1\nSECTION=data");
  Merge(ParseProgress("STEP=2\nRATE=5"), message);
  EXPECT_EQ(message, ParseProgress("STEP=2\nSECTION=data\nRATE=5"));
}

}  // namespace
}  // namespace ddprun
