// SPDX-License-Identifier: Apache-2.0
// What of a training can be told without a world: its length, its schedule, the folder for the
// result, the checksum.
#include "worker/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/unit/worker/temp_files.h"
#include "worker/checksum.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TrainingLength, CountsTheShortLastBatch) {
  const Length length = TrainingLength({.batch_size = 64, .epochs = 2}, 60'000, 2);
  EXPECT_EQ(length.steps_per_epoch, 469);  // 30 000 images of a rank: 468 batches and 48 more
  EXPECT_EQ(length.steps, 938);
  EXPECT_EQ(length.epochs, 2);
}

TEST(TrainingLength, EpochsMayBeAFraction) {
  const Length length = TrainingLength({.batch_size = 10, .epochs = 1.5}, 100, 1);
  EXPECT_EQ(length.steps, 15);
  EXPECT_EQ(length.epochs, 2);
  EXPECT_EQ(TrainingLength({.batch_size = 10, .epochs = 0.01}, 100, 1).steps, 1);
}

TEST(TrainingLength, MaxStepsCutsItShort) {
  const Config config{.batch_size = 10, .epochs = 3, .max_steps = 12};
  EXPECT_EQ(TrainingLength(config, 100, 1).steps, 12);
  EXPECT_EQ(TrainingLength(config, 100, 1).epochs, 2);
  EXPECT_EQ(TrainingLength({.max_steps = 0}, 100, 1).steps, 0);
  EXPECT_EQ(TrainingLength({.max_steps = 0}, 100, 1).epochs, 0);
}

TEST(MakeSchedule, WarmUpIsCountedInEpochsOrSteps) {
  Config config{.batch_size = 10, .epochs = 2, .lr = 0.3, .warmup_epochs = 0.5};
  const Length length = TrainingLength(config, 100, 1);
  EXPECT_EQ(MakeSchedule(config, length).warmup_steps, 5);
  EXPECT_EQ(MakeSchedule(config, length).total_steps, 20);
  EXPECT_EQ(MakeSchedule(config, length).peak_rate, 0.3);
  config.warmup_steps = 3;
  EXPECT_EQ(MakeSchedule(config, length).warmup_steps, 3);
  config.warmup_steps = 30;
  EXPECT_EQ(MakeSchedule(config, length).warmup_steps, 20);
}

TEST(PrepareOutputDirectory, MakesIt) {
  const TempFiles files;
  PrepareOutputDirectory(files.Path("a/b"));
  EXPECT_TRUE(std::filesystem::is_directory(files.Path("a/b")));
}

TEST(PrepareOutputDirectory, AFileInItsPlaceIsAFault) {
  const TempFiles files;
  const auto path = files.Write("file", "x");
  EXPECT_THAT(MessageOf<UsageError>([&] { PrepareOutputDirectory(path + "/inside"); }),
              AllOf(HasSubstr(path), HasSubstr("--output-dir")));
}

TEST(Checksum, IsOfTheNumbersInTheirOrder) {
  const at::Tensor a = at::randn({2, 3, 4, 4});
  const at::Tensor b = at::randn({5});
  const std::uint32_t both = Checksum({a, b});
  EXPECT_EQ(Checksum({a.contiguous(at::MemoryFormat::ChannelsLast), b.clone()}), both);
  EXPECT_NE(Checksum({b, a}), both);
  at::Tensor changed = b.clone();
  changed[4] += 1e-6;
  EXPECT_NE(Checksum({a, changed}), both);
  EXPECT_EQ(Checksum({at::tensor({'1', '2', '3', '4', '5', '6', '7', '8', '9'}, at::kByte)}),
            0xcbf43926u);
}

TEST(Checksum, TextHasEightDigits) { EXPECT_EQ(ChecksumText(0x00ab12cd), "00ab12cd"); }

}  // namespace
}  // namespace ddprun
