// SPDX-License-Identifier: Apache-2.0
#include "worker/train/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

TEST(AgreementTest, SharedSettingsAreNamedAsOnTheCommandLine) {
  Config config;
  config.lr = 0.25;
  const auto shared = SharedSettings(config);
  EXPECT_THAT(shared, Contains(Pair("--lr", "0.25")));
  EXPECT_THAT(shared, Contains(Pair("--max-steps", "")));
  EXPECT_THAT(shared, Contains(Key("--eval-batch-size")));
  for (const char* own : {"--data-dir", "--output-dir", "--device", "--loader-threads"})
    EXPECT_THAT(shared, Not(Contains(Key(own))));
}

TEST(AgreementTest, WhatATrainingIsDoesNotDependOnHowItIsWatched) {
  const auto settings = TrainingSettings(Config{});
  EXPECT_THAT(settings, Contains(Key("lr")));
  EXPECT_THAT(settings, Contains(Key("resume")));
  for (const char* other : {"checkpoint-every", "eval-every", "log-every", "output-dir"})
    EXPECT_THAT(settings, Not(Contains(Key(other))));
}

}  // namespace
}  // namespace ddprun
