// SPDX-License-Identifier: Apache-2.0
// Which runs `train compare` makes of its settings, and how it shows their results.
#include "worker/train/app/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

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

PastRun Past(const std::string& name, const std::string& summary) {
  return {.name = name, .summary = nlohmann::json::parse(summary), .evaluations = {}};
}

TEST(PastRuns, EvaluationsAreTheRecordsWithATestAccuracy) {
  const auto evaluations = EvaluationsIn({{"accuracy/test", {{10, 1, 0.5}, {20, 2, 0.75}}},
                                          {"loss/test", {{10, 1, 2}, {20, 2, 1}}},
                                          {"epoch", {{5, 0, 0.25}, {10, 1, 0.5}, {20, 2, 1}}}});
  ASSERT_EQ(evaluations.size(), 2u);
  EXPECT_EQ(evaluations[1].epoch, 1);
  EXPECT_EQ(evaluations[1].accuracy, 0.75);
  EXPECT_EQ(evaluations[1].loss, 1);
}

TEST(PastRuns, AreShownByWhatDiffers) {
  PastRun a = Past("a", R"({"world_size": 2, "steps": 20, "best_epoch": 1.5,
      "settings": {"lr": "0.1", "model": "linear", "output-dir": "a"},
      "by_class": {"names": ["cat", "dog", "ape"], "accuracy": [0.5, 0.75, null]}})");
  PastRun b = Past("b", R"({"world_size": 1, "steps": 20, "best_epoch": 2,
      "settings": {"lr": "0.2", "model": "linear", "output-dir": "b", "new": "1"},
      "by_class": {"names": ["cat", "dog", "ape"], "accuracy": [0.5, 0.5, 1]}})");
  a.evaluations = {{.epoch = 1, .accuracy = 0.25, .loss = 2}};
  b.evaluations = {{.epoch = 0.5, .accuracy = 0.125, .loss = 3},
                   {.epoch = 1, .accuracy = 0.5, .loss = 1}};
  EXPECT_EQ(ToTables(a, b),
            "               a     b\n"
            "ranks          2     1\n"
            "steps         20    20\n"
            "best epoch  1.50  2.00\n"
            "speed-up       -     -\n"
            "\n"
            "settings that differ    a    b\n"
            "lr                    0.1  0.2\n"
            "new                     -    1\n"
            "\n"
            "test accuracy, loss by epoch        a        b  loss a  loss b\n"
            "0.50                                -  12.50 %       -  3.0000\n"
            "1                             25.00 %  50.00 %  2.0000  1.0000\n"
            "\n"
            "accuracy by class        a        b  difference\n"
            "1 dog              75.00 %  50.00 %      -25.00\n"
            "0 cat              50.00 %  50.00 %        0.00\n");
}

TEST(PastRuns, ManyEvaluationsAreFewRowsAndTheLast) {
  PastRun a = Past("a", R"({"settings": {}})");
  for (int i = 1; i <= 45; ++i) a.evaluations.push_back({.epoch = static_cast<double>(i)});
  const std::string table = ToTables(a, Past("b", R"({"settings": {}})"));
  EXPECT_THAT(table, HasSubstr("\nno setting differs\n"));
  EXPECT_THAT(table, HasSubstr("\n3 "));
  EXPECT_THAT(table, HasSubstr("\n45 "));
  EXPECT_THAT(table, Not(HasSubstr("\n44 ")));
}

TEST(PastRuns, OfOlderVersionsOrOtherClassesAreToldSo) {
  const PastRun old = Past("old", R"({"by_class": {"accuracy": [1, 1]}})");
  const std::string table = ToTables(old, Past("b", R"({"by_class": {"accuracy": [1]}})"));
  EXPECT_THAT(table, HasSubstr("the settings of old are not in its summary.json"));
  EXPECT_THAT(table, HasSubstr("the classes of the two are not the same"));
  EXPECT_THROW(ToTables(old, Past("b", R"({"settings": 7, "by_class": 7})")), std::runtime_error);
}

}  // namespace
}  // namespace ddprun
