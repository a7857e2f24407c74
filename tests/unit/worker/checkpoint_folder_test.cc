// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/worker/small_snapshot.h"
#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<std::int64_t> StepsIn(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const auto& entry : ListCheckpoints(folder)) steps.push_back(entry.step);
  return steps;
}

void FlipLastByte(const TempFiles& files, std::int64_t step) {
  const std::string path = files.Path(CheckpointName(step));
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-6, std::ios::end);
  file.put('x');
}

const Notify kNobody = [](const std::string& text) { ADD_FAILURE() << text; };

TEST(CheckpointFolderTest, NamesSortAsSteps) {
  EXPECT_EQ(CheckpointName(1234), "step-000001234.safetensors");
  const TempFiles files;
  for (const auto& name :
       {CheckpointName(9), CheckpointName(10), CheckpointName(12345678901), std::string("step-x"),
        std::string("step-.safetensors"), std::string("step--1.safetensors"),
        std::string("step-.safetensor"), CheckpointName(11) + ".tmp.5"}) {
    files.Write(name, "");
  }
  EXPECT_THAT(StepsIn(files.folder()), ElementsAre(12345678901, 10, 9));
  EXPECT_THAT(StepsIn(files.Path("none")), IsEmpty());
}

TEST(CheckpointFolderTest, TheNewestGoodOneIsFoundAndTheDamagedNamed) {
  const TempFiles files;
  for (const std::int64_t step : {1, 2, 3, 4}) WriteSmall(files.folder(), step);
  FlipLastByte(files, 4);
  std::filesystem::resize_file(files.Path(CheckpointName(3)), 100);
  std::vector<std::string> told;
  const auto found = FindNewest(files.folder(), std::nullopt,
                                [&](const std::string& text) { told.push_back(text); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, files.Path(CheckpointName(2)));
  ExpectStep(found->snapshot, 2);
  EXPECT_THAT(told, ElementsAre(HasSubstr(CheckpointName(4)), HasSubstr(CheckpointName(3))));
  EXPECT_THAT(told[0], HasSubstr("passed over"));
}

TEST(CheckpointFolderTest, WithoutAGoodOneNothingIsFound) {
  const TempFiles files;
  EXPECT_FALSE(FindNewest(files.folder(), std::nullopt, kNobody));
  EXPECT_FALSE(FindNewest(files.Path("none"), std::nullopt, kNobody));
  EXPECT_THAT(MessageOf<CheckpointError>([&] { OpenCheckpoint(files.folder(), kNobody); }),
              HasSubstr("no good checkpoint in " + files.folder()));
}

TEST(CheckpointFolderTest, OnlyOfTheTrainingThatIsAskedFor) {
  const TempFiles files;
  WriteSmall(files.folder(), 1, "new");
  WriteSmall(files.folder(), 7, "old");
  ExpectStep(FindNewest(files.folder(), "new", kNobody)->snapshot, 1);
  EXPECT_FALSE(FindNewest(files.folder(), "other", kNobody));
  ExpectStep(OpenCheckpoint(files.folder(), kNobody).snapshot, 7);
  SetCurrentOwner(files.folder(), {.training = "new"});
  ExpectStep(OpenCheckpoint(files.folder(), kNobody).snapshot, 1);
  ExpectStep(OpenCheckpoint(files.Path(CheckpointName(7)), kNobody).snapshot, 7);
}

TEST(CheckpointFolderTest, RemembersTheTraining) {
  const TempFiles files;
  EXPECT_EQ(CurrentTraining(files.folder()), "");
  SetCurrentOwner(files.folder(), {.training = "0123456789abcdef"});
  EXPECT_EQ(CurrentTraining(files.folder()), "0123456789abcdef");
  for (const char* text : {"", "{", "[]", "{\"training\": 1}", "{\"a\": \"b\"}"}) {
    files.Write("training.json", text);
    EXPECT_EQ(CurrentTraining(files.folder()), "") << text;
  }
  EXPECT_NE(NewTrainingName(), NewTrainingName());
  EXPECT_EQ(NewTrainingName().size(), 16u);
}

TEST(CheckpointRetentionTest, KeepsTheNewestGoodOnes) {
  const TempFiles files;
  for (const std::int64_t step : {1, 2, 3, 4, 5}) WriteSmall(files.folder(), step);
  FlipLastByte(files, 4);
  CheckpointRetention(files.folder(), "t", 2).Apply();
  EXPECT_THAT(StepsIn(files.folder()), ElementsAre(5, 3));
}

TEST(CheckpointRetentionTest, DeletesNothingBeforeThereAreEnough) {
  const TempFiles files;
  WriteSmall(files.folder(), 1);
  WriteSmall(files.folder(), 2);
  FlipLastByte(files, 2);
  CheckpointRetention(files.folder(), "t", 2).Apply();
  EXPECT_THAT(StepsIn(files.folder()), ElementsAre(2, 1));
}

TEST(CheckpointRetentionTest, AnEarlierTrainingGivesWay) {
  const TempFiles files;
  WriteSmall(files.folder(), 100, "old");
  WriteSmall(files.folder(), 200, "old");
  WriteSmall(files.folder(), 1, "new");
  CheckpointRetention retention(files.folder(), "new", 2);
  retention.Apply();
  EXPECT_THAT(StepsIn(files.folder()), ElementsAre(200, 100, 1));
  retention.IsGood(WriteSmall(files.folder(), 2, "new"));
  retention.Apply();
  EXPECT_THAT(StepsIn(files.folder()), ElementsAre(2, 1));
}

TEST(CheckpointRetentionTest, TakesAwayWhatDeadWritersLeft) {
  const TempFiles files;
  const std::string own = CheckpointName(1) + ".tmp." + std::to_string(getpid());
  const std::string live = CheckpointName(1) + ".tmp." + std::to_string(getppid());
  const std::string dead = CheckpointName(1) + ".tmp.2147483646";
  for (const auto& name : {own, live, dead, std::string("mine.tmp.2147483646")})
    files.Write(name, "half");
  CheckpointRetention(files.folder(), "t", 2).RemoveStaleTemporaries();
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(files.folder()))
    left.push_back(entry.path().filename());
  EXPECT_THAT(left, UnorderedElementsAre(live, "mine.tmp.2147483646"));
}

}  // namespace
}  // namespace ddprun
