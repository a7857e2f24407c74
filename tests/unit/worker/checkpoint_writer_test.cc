// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "tests/unit/worker/small_snapshot.h"
#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kLimit{60};

CheckpointWriter::Report SaveAndWait(CheckpointWriter& writer, std::int64_t step) {
  EXPECT_TRUE(writer.Save(step, SmallSnapshot(step)));
  EXPECT_TRUE(writer.WaitUntilSaved(kLimit));
  const auto reports = writer.TakeReports();
  EXPECT_EQ(reports.size(), 1u);
  return reports.empty() ? CheckpointWriter::Report{} : reports.front();
}

TEST(CheckpointWriterTest, SavesAndKeepsTheNewest) {
  const TempFiles files;
  CheckpointWriter writer({.folder = files.folder(), .training = "t", .keep = 2});
  for (const std::int64_t step : {1, 2, 3, 10}) {
    const auto report = SaveAndWait(writer, step);
    EXPECT_EQ(report.error, "");
    EXPECT_EQ(report.step, step);
    EXPECT_EQ(report.path, files.Path(CheckpointName(step)));
    EXPECT_EQ(report.bytes, std::filesystem::file_size(report.path));
    ExpectStep(ReadCheckpoint(report.path), step);
  }
  EXPECT_EQ(ListCheckpoints(files.folder()).size(), 2u);
  EXPECT_EQ(writer.TakeReports().size(), 0u);
  EXPECT_EQ(writer.put_off(), 0);
}

TEST(CheckpointWriterTest, TheBestStaysWhenItsStepGivesWay) {
  const TempFiles files;
  CheckpointWriter writer({.folder = files.folder(), .training = "t", .keep = 2});
  const auto save = [&writer](std::int64_t step, bool best) {
    ASSERT_TRUE(writer.Save(step, SmallSnapshot(step), best));
    ASSERT_TRUE(writer.WaitUntilSaved(kLimit));
    const auto reports = writer.TakeReports();
    ASSERT_EQ(reports.size(), 1u);
    EXPECT_EQ(reports[0].error, "");
    EXPECT_EQ(reports[0].best, best);
  };
  const std::string best = files.Path(kBestCheckpoint);
  const auto ignore = [](const std::string&) {};
  save(1, false);
  EXPECT_FALSE(FindBest(files.folder(), "t", ignore).has_value());
  save(2, true);
  EXPECT_TRUE(std::filesystem::equivalent(best, files.Path(CheckpointName(2)))) << "written twice";
  for (const std::int64_t step : {3, 4, 5}) save(step, false);
  EXPECT_FALSE(std::filesystem::exists(files.Path(CheckpointName(2))));
  ExpectStep(FindBest(files.folder(), "t", ignore)->snapshot, 2);
  EXPECT_FALSE(FindBest(files.folder(), "another training", ignore).has_value());
  save(5, true);  // a step that has its file already
  ExpectStep(ReadCheckpoint(best), 5);
  ExpectStep(ReadCheckpoint(files.Path(CheckpointName(5))), 5);
  EXPECT_EQ(ListCheckpoints(files.folder()).size(), 2u);
  for (const auto& entry : std::filesystem::directory_iterator(files.folder()))
    EXPECT_THAT(entry.path(), testing::Not(testing::EndsWith(".tmp." + std::to_string(getpid()))));
}

TEST(CheckpointWriterTest, ADamagedBestOneIsToldAndPassedOver) {
  const TempFiles files;
  std::filesystem::rename(WriteSmall(files.folder(), 7), files.Path(kBestCheckpoint));
  std::filesystem::resize_file(files.Path(kBestCheckpoint), 100);
  std::string told;
  EXPECT_FALSE(FindBest(files.folder(), "t", [&](const std::string& text) { told += text; }));
  EXPECT_THAT(told, testing::AllOf(HasSubstr(kBestCheckpoint), HasSubstr("it is passed over")));
}

TEST(CheckpointWriterTest, WhatIsChangedAfterTheCopyIsNotSaved) {
  const TempFiles files;
  CheckpointWriter writer({.folder = files.folder(), .training = "t"});
  at::Tensor weight = at::ones({4 << 20});
  ASSERT_TRUE(writer.Save(1, {.tensors = {{"w", weight}}}));
  writer.WaitUntilCopied();
  weight.zero_();
  EXPECT_EQ(writer.WaitUntilCopied().count(), 0);
  ASSERT_TRUE(writer.WaitUntilSaved(kLimit));
  const Snapshot read = ReadCheckpoint(files.Path(CheckpointName(1)));
  EXPECT_TRUE(at::equal(read.tensors.front().second, at::ones({4 << 20})));
}

TEST(CheckpointWriterTest, OneSaveAtATime) {
  const TempFiles files;
  CheckpointWriter writer({.folder = files.folder(), .training = "t"});
  // Large enough to be still on its way when the next call comes.
  ASSERT_TRUE(writer.Save(1, {.tensors = {{"w", at::ones({16 << 20})}}}));
  EXPECT_FALSE(writer.Save(2, SmallSnapshot(2)));
  EXPECT_EQ(writer.put_off(), 1);
  ASSERT_TRUE(writer.WaitUntilSaved(kLimit));
  EXPECT_TRUE(writer.Save(3, SmallSnapshot(3)));
  ASSERT_TRUE(writer.WaitUntilSaved(kLimit));
  EXPECT_FALSE(std::filesystem::exists(files.Path(CheckpointName(2))));
  EXPECT_EQ(writer.TakeReports().size(), 2u);
}

TEST(CheckpointWriterTest, TheEndWaitsForTheSaveUnderWay) {
  const TempFiles files;
  {
    CheckpointWriter writer({.folder = files.folder(), .training = "t"});
    ASSERT_TRUE(writer.Save(1, SmallSnapshot(1)));
  }
  ExpectStep(ReadCheckpoint(files.Path(CheckpointName(1))), 1);
}

TEST(CheckpointWriterTest, AFailedSaveIsNamedAndTheNextIsTried) {
  const TempFiles files;
  const std::string folder = files.Path("a");
  std::filesystem::create_directory(folder);
  CheckpointWriter writer({.folder = folder, .training = "t"});
  EXPECT_EQ(SaveAndWait(writer, 1).error, "");
  std::filesystem::rename(folder, files.Path("away"));
  const std::string error = SaveAndWait(writer, 2).error;
  EXPECT_THAT(error, HasSubstr("checkpoint of step 2 is not saved: cannot create " + folder));
  EXPECT_THAT(error, HasSubstr("No such file or directory"));
  std::filesystem::rename(files.Path("away"), folder);
  EXPECT_EQ(SaveAndWait(writer, 3).error, "");
  ExpectStep(ReadCheckpoint(folder + "/" + CheckpointName(1)), 1);
}

// A training that has diverged would replace its good checkpoints by such ones.
TEST(CheckpointWriterTest, ValuesThatAreNotFiniteAreNotSaved) {
  const TempFiles files;
  CheckpointWriter writer({.folder = files.folder(), .training = "t", .keep = 2});
  for (const std::int64_t step : {1, 2}) EXPECT_EQ(SaveAndWait(writer, step).error, "");
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      for (const std::int64_t place : {0, 4097, 9999}) {
        Snapshot snapshot = SmallSnapshot(3);
        snapshot.tensors.emplace_back(
            "optimizer/w",
            at::ones({100, 4, 5, 5}, type).contiguous(at::MemoryFormat::ChannelsLast));
        snapshot.tensors.back().second.as_strided({10000}, {1}).select(0, place).fill_(value);
        ASSERT_TRUE(writer.Save(3, std::move(snapshot)));
        ASSERT_TRUE(writer.WaitUntilSaved(kLimit));
        const auto reports = writer.TakeReports();
        ASSERT_EQ(reports.size(), 1u);
        EXPECT_EQ(reports[0].error,
                  "checkpoint of step 3 is not saved: optimizer/w has values that are not finite; "
                  "older ones are kept");
      }
    }
  }
  EXPECT_EQ(ListCheckpoints(files.folder()).size(), 2u);
  EXPECT_EQ(SaveAndWait(writer, 4).error, "");
}

// All bits of what holds no numbers may be set, and a counter is any number.
TEST(CheckpointWriterTest, AnyBitsOfWhatIsNotFloatingPointAreSaved) {
  const TempFiles files;
  CheckpointWriter writer({.folder = files.folder(), .training = "t"});
  const float largest = std::numeric_limits<float>::max();
  ASSERT_TRUE(writer.Save(1, {.tensors = {{"random/0", at::full({5056}, 255, at::kByte)},
                                          {"steps", at::full({2}, -1, at::kLong)},
                                          {"mask", at::ones({3}, at::kBool)},
                                          {"none", at::ones({0})},
                                          {"large", at::tensor({largest, -largest, 1e-45f})}}}));
  ASSERT_TRUE(writer.WaitUntilSaved(kLimit));
  EXPECT_EQ(writer.TakeReports().at(0).error, "");
}

TEST(CheckpointWriterTest, WhatCannotBeSavedIsNamed) {
  const TempFiles files;
  CheckpointWriter writer({.folder = files.folder(), .training = "t"});
  ASSERT_TRUE(writer.Save(1, {.tensors = {{"z", at::ones({2}, at::kComplexFloat)}}}));
  writer.WaitUntilCopied();
  ASSERT_TRUE(writer.WaitUntilSaved(kLimit));
  EXPECT_THAT(writer.TakeReports().at(0).error, HasSubstr("'z'"));
}

}  // namespace
}  // namespace ddprun
