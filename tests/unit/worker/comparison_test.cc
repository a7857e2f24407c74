// SPDX-License-Identifier: Apache-2.0
// Which runs `train compare` makes of its settings, and how it shows their results.
#include "worker/train/app/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;

Config Small() {
  Config config;
  config.model = "resnet18";
  config.batch_size = 8;
  config.augment = true;
  config.output_dir = "out";
  config.world_size = 4;
  return config;
}

TEST(ComparedRuns, TrainWithTheSameImagesInEachStep) {
  const auto runs = ComparedRuns(Small(), 4);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].ranks, 1);
  EXPECT_THAT(runs[0].settings, IsSupersetOf({"--batch-size=32", "--output-dir=out/plain"}));
  EXPECT_EQ(runs[1].ranks, 4);
  EXPECT_THAT(runs[1].settings, IsSupersetOf({"--batch-size=8", "--output-dir=out/ddp"}));
  EXPECT_EQ(runs[2].ranks, 4);
  EXPECT_THAT(runs[2].settings,
              IsSupersetOf({"--batch-size=32", "--output-dir=out/pipeline", "--pipeline=4"}));
}

TEST(ComparedRuns, FewerStagesAreDataParallelOnTop) {
  Config config = Small();
  config.pipeline = 2;
  config.micro_batches = 4;
  const auto runs = ComparedRuns(config, 4);
  EXPECT_THAT(runs[2].settings,
              IsSupersetOf({"--batch-size=16", "--pipeline=2", "--micro-batches=4"}));
  for (const auto& run : {runs[0], runs[1]}) {
    EXPECT_THAT(run.settings, Not(Contains(StartsWith("--pipeline="))));
    EXPECT_THAT(run.settings, Not(Contains(StartsWith("--micro-batches"))));
  }
}

TEST(ComparedRuns, AllElseIsPassedOnAsItWasSaid) {
  for (const auto& run : ComparedRuns(Small(), 4)) {
    EXPECT_THAT(run.settings, IsSupersetOf({"--model=resnet18", "--augment"}));
    EXPECT_THAT(run.settings, Not(Contains(HasSubstr("--world-size"))));
    EXPECT_THAT(run.settings, Not(Contains(HasSubstr("--lr"))));  // left at its default
  }
}

std::vector<ComparedResult> Results() {
  return {{.name = "plain", .numbers = {{"images_per_second", 100}, {"loss", 2.5}}},
          {.name = "ddp", .ranks = 2, .numbers = {{"images_per_second", 190}, {"loss", 2.25}}},
          {.name = "pipeline", .ranks = 2, .error = "it has one part"}};
}

TEST(ComparisonTable, HasAColumnForEachRun) {
  EXPECT_EQ(ToTable(Results()),
            "                  plain     ddp  pipeline\n"
            "ranks                 1       2         2\n"
            "images a second     100     190         -\n"
            "loss             2.5000  2.2500         -\n"
            "speed-up           1.00    1.90         -\n"
            "pipeline: it has one part\n");
}

TEST(ComparisonTable, IsThereForPrograms) {
  const auto json = nlohmann::json::parse(ToJson(Results()));
  EXPECT_EQ(json["ddp"]["images_per_second"], 190);
  EXPECT_EQ(json["ddp"]["ranks"], 2);
  EXPECT_EQ(json["pipeline"]["error"], "it has one part");
  EXPECT_FALSE(json["plain"].contains("error"));
}

}  // namespace
}  // namespace ddprun
