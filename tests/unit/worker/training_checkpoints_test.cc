// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/training_snapshot.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/temp_files.h"
#include "worker/library/base/step_seed.h"
#include "worker/library/checkpoint/header_fields.h"
#include "worker/library/files/atomic_file.h"

namespace ddprun {
namespace {

nlohmann::json AboutWith(const char* amp, double scale) {
  return {{"config", {{"amp", amp}}}, {"scaler", {{"scale", scale}, {"steps_since_growth", 7}}}};
}

TEST(SavedScale, IsThatOfATrainingInFp16) {
  const auto saved = SavedScale(AboutWith("fp16", 1024));
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->scale, 1024);
  EXPECT_EQ(saved->steps_since_growth, 7);
}

// Resumed with --amp fp16 such a training begins with the scaler's own first scale.
TEST(SavedScale, IsNoneOfATrainingThatDidNotScale) {
  for (const char* amp : {"off", "auto", "bf16"}) EXPECT_FALSE(SavedScale(AboutWith(amp, 1)));
}

// A scale below 1 has ended the training: the next would end at once.
TEST(SavedScale, IsNoneOfATrainingThatOverflowedUntilItsEnd) {
  EXPECT_FALSE(SavedScale(AboutWith("fp16", 0.5)));
  EXPECT_EQ(SavedScale(AboutWith("fp16", 1))->scale, 1);
}

TEST(SavedScale, OfAnotherTypeIsNamed) {
  for (const auto& [scaler, fact] : std::vector<std::pair<const char*, const char*>>{
           {"{\"scale\": \"2\", \"steps_since_growth\": 7}",
            "'scaler.scale' in its metadata is \"2\", but must be a number from 0 to 3e+38"},
           {"{\"scale\": 2}", "its metadata have no 'scaler.steps_since_growth'"},
           {"7", "'scaler' in its metadata is 7, but must be an object"}}) {
    nlohmann::json about = AboutWith("fp16", 1024);
    about["scaler"] = nlohmann::json::parse(scaler);
    EXPECT_EQ(MessageOf<HeaderError>([&] { SavedScale(about); }), fact);
  }
}

TEST(SavedPlace, IsThatOfTheHeader) {
  nlohmann::json about = {{"step", 12}, {"epoch", 3}, {"consumed", 5}, {"reached_target", true}};
  TrainingPlace place = SavedPlace(about);
  EXPECT_EQ(place.position, (TrainingPosition{.step = 12, .epoch = 3, .consumed = 5}));
  EXPECT_TRUE(place.reached_target);
  EXPECT_FALSE(place.evaluation_due);
  about["evaluation_due"] = true;
  EXPECT_TRUE(SavedPlace(about).evaluation_due);
  EXPECT_EQ(place.best, BestEvaluation()) << "of an earlier version";
  about["best"] = {{"step", 9}, {"accuracy", 0.1}, {"loss", -0.3}, {"since", 2}};
  EXPECT_EQ(SavedPlace(about).best.epoch, 0) << "of an earlier version";
  about["best"]["epoch"] = 2.5;
  EXPECT_EQ(SavedPlace(nlohmann::json::parse(about.dump())).best,
            (BestEvaluation{.step = 9, .epoch = 2.5, .accuracy = 0.1, .loss = -0.3, .since = 2}));
  about.erase("reached_target");
  EXPECT_EQ(MessageOf<HeaderError>([&] { SavedPlace(about); }),
            "its metadata have no 'reached_target'");
}

TEST(SavedLayout, IsThatOfTheFile) {
  const BucketLayout layout = {{2, 0}, {1}};
  const TempFiles files;
  CheckpointImage image;
  image.Fill({.tensors = {{"model/weight", at::zeros({2})}}, .about = {{"buckets", layout}}});
  const std::string path = files.Path("checkpoint");
  AtomicFile file(path);
  file.Write(image.bytes(), image.size());
  file.Commit();
  EXPECT_EQ(SavedLayout(ReadCheckpoint(path).about), layout);
}

TEST(SavedLayout, IsNoneOfACheckpointBeforeThereWereAny) {
  EXPECT_TRUE(SavedLayout(AboutWith("off", 1)).empty());
  EXPECT_TRUE(SavedLayout(nlohmann::json::object()).empty());
}

TEST(SavedLayout, IsNoneWhereItCannotBeRead) {
  for (const char* buckets : {"null", "7", "\"0\"", "{}", "{\"0\": [0]}", "[]", "[0, 1]",
                              "[[0], 1]", "[[0], null]", "[[-1]]", "[[0.5]]", "[[\"0\"]]",
                              "[[true]]", "[[[0]]]", "[[1e300]]", "[[36893488147419103232]]"}) {
    EXPECT_TRUE(SavedLayout({{"buckets", nlohmann::json::parse(buckets)}}).empty()) << buckets;
  }
}

TEST(SeedStep, IsOfSeedStepAndRankAlone) {
  const auto drawn = [](std::uint64_t seed, std::int64_t step, int rank) {
    SeedStep(at::kCPU, seed, step, rank);
    return at::rand({8});
  };
  const at::Tensor first = drawn(1, 2, 3);
  EXPECT_FALSE(at::equal(first, at::rand({8})));
  EXPECT_TRUE(at::equal(first, drawn(1, 2, 3)));
  EXPECT_FALSE(at::equal(first, drawn(2, 2, 3)));
  EXPECT_FALSE(at::equal(first, drawn(1, 3, 3)));
  EXPECT_FALSE(at::equal(first, drawn(1, 2, 2)));
}

}  // namespace
}  // namespace ddprun
