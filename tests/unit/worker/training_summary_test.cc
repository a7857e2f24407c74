// SPDX-License-Identifier: Apache-2.0
#include "worker/train/observers/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

TEST(Summary, JsonHasTheAccuracyOnlyIfThereIsOne) {
  Summary summary{.steps = 4, .images = 100, .training_seconds = 2, .backend = "gloo"};
  const auto without = nlohmann::json::parse(ToJson(summary));
  EXPECT_EQ(without["images_per_second"], 50);
  EXPECT_EQ(without["steps"], 4);
  EXPECT_FALSE(without.contains("test_accuracy"));
  summary.evaluation = Evaluation{.images = 10, .loss = 0.5, .sums = {{kAccuracyMetric, 9}}};
  const auto with = nlohmann::json::parse(ToJson(summary));
  EXPECT_EQ(with["test_accuracy"], 0.9);
  EXPECT_EQ(with["test_loss"], 0.5);
}

TEST(Summary, ALossThatIsNoNumberIsStillJson) {
  const Summary summary{.loss = std::nan("")};
  EXPECT_TRUE(nlohmann::json::parse(ToJson(summary))["loss"].is_null());
}

TEST(Summary, TheTableTellsHowLongStepsWaited) {
  Summary summary{
      .steps = 25, .training_seconds = 10, .data_wait_seconds = 1, .gradient_wait_seconds = 0.5};
  EXPECT_THAT(ToTable(summary), testing::Not(testing::HasSubstr("gradients"))) << "one rank";
  summary.world_size = 2;
  EXPECT_THAT(ToTable(summary), testing::HasSubstr("waited for data       10.00 %\n"
                                                   "waited for gradients  5.00 %"));
  EXPECT_THAT(ToTable(summary), testing::HasSubstr("10.0 s (25 steps, 2.5 a second)"));
}

TEST(Summary, ProgramsAreToldWhatOfTheAveragingWasHiddenWhereThereWasSome) {
  Summary summary{.steps = 25};
  EXPECT_FALSE(nlohmann::json::parse(ToJson(summary)).contains("gradients_hidden_share"));
  summary.gradients = {.averaging_seconds = 4, .waited_seconds = 1, .bytes = 300};
  EXPECT_THAT(ToTable(summary), testing::Not(testing::HasSubstr("hidden")));
  const auto json = nlohmann::json::parse(ToJson(summary));
  EXPECT_EQ(json["gradients_hidden_share"], 0.75);
  EXPECT_EQ(json["gradient_bytes"], 300);
}

TEST(Summary, TheTimeOfTheRankAddsUpToTheWhole) {
  Summary summary;
  summary.rank_time[TimeClass::kTraining] = std::chrono::seconds(3);
  summary.rank_time[TimeClass::kStart] = std::chrono::milliseconds(500);
  summary.SetTotal(4);
  const auto json = nlohmann::json::parse(ToJson(summary));
  EXPECT_EQ(json["rank_seconds"]["training"], 3);
  EXPECT_EQ(json["rank_seconds"]["start"], 0.5);
  EXPECT_EQ(json["rank_seconds"]["checkpoint"], 0.5);
  EXPECT_EQ(json["rank_seconds"].size(), kTimeClasses);
}

TEST(Summary, TheBestAccuracyIsToldIfItIsNotTheLast) {
  Summary summary{
      .evaluation = Evaluation{.images = 10, .loss = 0.5, .sums = {{kAccuracyMetric, 9}}},
      .best = {.step = 5, .accuracy = 0.9}};
  EXPECT_THAT(ToTable(summary), testing::Not(testing::HasSubstr("best accuracy")));
  summary.best.accuracy = 0.95;
  EXPECT_THAT(ToTable(summary), testing::ContainsRegex("best accuracy +95.00 %"));
}

TEST(Summary, ClassesAreThoseOfTheBestModelIfItsFileIsKept) {
  const auto counts = [](std::int64_t right) {
    return ClassCounts{
        .images = {2, 0}, .right = {right, 0}, .matrix = {{right, 2 - right}, {0, 0}}};
  };
  Summary summary{.evaluation = Evaluation{.images = 2, .sums = {{kAccuracyMetric, 1}}},
                  .best = {.step = 5, .epoch = 2.5, .accuracy = 0.95},
                  .best_by_class = {.step = 5, .counts = counts(2)},
                  .class_names = {"cat", "dog"}};
  EXPECT_EQ(ToClassTable(summary), "");
  summary.evaluation->by_class = counts(1);
  summary.ChooseClasses(/*last=*/9);
  EXPECT_EQ(ToClassTable(summary),
            "test images by class, after step 9\n"
            "class  accuracy  as 0  as 1\n"
            "0 cat   50.00 %     1     1\n"
            "1 dog         -     0     0");
  auto json = nlohmann::json::parse(ToJson(summary));
  EXPECT_EQ(json["best_epoch"], 2.5);
  EXPECT_EQ(json["by_class"].dump(),
            R"({"accuracy":[0.5,null],"confusion":[[1,1],[0,0]],"images":[2,0],)"
            R"("names":["cat","dog"],"step":9})");
  EXPECT_THAT(ToTable(summary), testing::ContainsRegex("best epoch +2.50\n"));
  summary.best_file = "best.safetensors";
  summary.ChooseClasses(/*last=*/9);
  EXPECT_EQ(nlohmann::json::parse(ToJson(summary))["by_class"]["step"], 5);
  summary.best_by_class.step = 4;  // the best was found by another process
  summary.ChooseClasses(/*last=*/9);
  EXPECT_EQ(summary.by_class.step, 9);
}

TEST(Summary, TheBestModelIsToldWithItsFile) {
  Summary summary{.best = {.step = 5, .accuracy = 0.95, .loss = 0.25}};
  EXPECT_THAT(ToTable(summary), testing::Not(testing::HasSubstr("best model")));
  EXPECT_FALSE(nlohmann::json::parse(ToJson(summary)).contains("best_file"));
  summary.best_file = "run/checkpoints/best.safetensors";
  summary.best_description = "accuracy of 95.00 % after step 5";
  EXPECT_THAT(ToTable(summary),
              testing::ContainsRegex("best model +run/checkpoints/best.safetensors "
                                     "\\(accuracy of 95.00 % after step 5\\)"));
  const auto json = nlohmann::json::parse(ToJson(summary));
  EXPECT_EQ(json["best_file"], "run/checkpoints/best.safetensors");
  EXPECT_EQ(json["best_step"], 5);
  EXPECT_EQ(json["best_accuracy"], 0.95);
  EXPECT_EQ(json["best_loss"], 0.25);
}

}  // namespace
}  // namespace ddprun
