// SPDX-License-Identifier: Apache-2.0
#include "proto/progress_message.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(ProgressMessageTest, EveryFieldComesBack) {
  ProgressMessage message;
  message.step = 12;
  message.epoch = 3;
  message.rate = 310.5;
  message.unit = "images";
  message.section = "all_reduce 4711 = x";
  EXPECT_EQ(ParseProgress(ToText(message)), message);
  EXPECT_EQ(ParseProgress(ToText({})), ProgressMessage{});
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

TEST(ProgressMessageTest, LaterWordsAddToEarlierOnes) {
  ProgressMessage message = ParseProgress("STEP=1\nSECTION=data");
  Merge(ParseProgress("STEP=2\nRATE=5"), message);
  EXPECT_EQ(message, ParseProgress("STEP=2\nSECTION=data\nRATE=5"));
}

}  // namespace
}  // namespace ddprun
