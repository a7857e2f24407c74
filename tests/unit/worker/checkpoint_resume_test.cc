// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/unit/worker/small_snapshot.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/library/checkpoint/resume.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ResumeTest : public ::testing::Test {
 protected:
  ResumePoint Decide(const std::string& resume, bool restarted) {
    told_.clear();
    return DecideResume(
        {.resume = resume, .restarted = restarted, .folder = files_.folder(), .saving = true},
        [this](const std::string& text) { told_.push_back(text); });
  }
  // The step that it goes on from; -1: from the beginning.
  std::int64_t StepOf(const ResumePoint& point) {
    EXPECT_EQ(CurrentTraining(files_.folder()), point.training);
    if (!point.checkpoint) return -1;
    return point.checkpoint->snapshot.about.value("step", std::int64_t{-2});
  }

  TempFiles files_;
  std::vector<std::string> told_;
};

TEST_F(ResumeTest, AnEmptyFolderIsABeginning) {
  for (const char* resume : {"auto", "restart", "never"}) {
    for (const bool restarted : {false, true}) {
      EXPECT_EQ(StepOf(Decide(resume, restarted)), -1) << resume;
      EXPECT_THAT(told_, IsEmpty());
    }
  }
}

TEST_F(ResumeTest, ARestartGoesOnWithItsOwnTrainingOnly) {
  WriteSmall(files_.folder(), 9, "old");
  SetCurrentOwner(files_.folder(), {.training = "old"});
  const ResumePoint first = Decide("restart", false);
  EXPECT_EQ(StepOf(first), -1);
  EXPECT_NE(first.training, "old");
  EXPECT_THAT(told_, ElementsAre(HasSubstr("earlier training, the newest of step 9")));
  // It crashes before its first save, and after it.
  EXPECT_EQ(StepOf(Decide("restart", true)), -1);
  WriteSmall(files_.folder(), 3, CurrentTraining(files_.folder()));
  EXPECT_EQ(StepOf(Decide("restart", true)), 3);
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_EQ(StepOf(Decide("restart", false)), -1);
}

// Whatever ended before it could take the folder, or saves nothing.
TEST_F(ResumeTest, ARestartLeavesTheCheckpointsOfAnotherRunAlone) {
  const nlohmann::json settings = {{"lr", "0.1"}};
  SetCurrentOwner(files_.folder(), {.training = "t", .run = "job7"});
  WriteSmall(files_.folder(), 9, "t", {{"lr", "0.1"}, {"log-every", "50"}});
  const auto step = [&](ResumeOptions options) {
    SetCurrentOwner(files_.folder(), {.training = "t", .run = "job7"});
    options.restarted = true;
    options.folder = files_.folder();
    const ResumePoint point = DecideResume(options, [](const std::string&) {});
    return point.checkpoint ? point.checkpoint->snapshot.about.value("step", std::int64_t{-2}) : -1;
  };
  const nlohmann::json others = {{"lr", "0.2"}};
  const nlohmann::json more = {{"lr", "0.1"}, {"new-setting", "on"}};
  for (const char* resume : {"restart", "never", "auto"}) {
    const bool asked = std::string(resume) == "auto";
    const auto options = [&](const char* run, const nlohmann::json& of, bool saving) {
      return ResumeOptions{.resume = resume, .run = run, .settings = of, .saving = saving};
    };
    EXPECT_EQ(step(options("job7", settings, true)), std::string(resume) == "never" ? -1 : 9);
    EXPECT_EQ(step(options("job8", settings, true)), asked ? 9 : -1) << resume;
    EXPECT_EQ(step(options("job7", others, true)), asked ? 9 : -1) << resume;
    EXPECT_EQ(step(options("job7", more, true)), asked ? 9 : -1) << resume;
    EXPECT_EQ(step(options("job7", settings, false)), asked ? 9 : -1) << resume;
  }
  const TempFiles other;
  const std::string path = WriteSmall(other.folder(), 50, "other");
  EXPECT_EQ(step({.resume = path, .run = "job7", .settings = settings, .saving = true}), 9);
  EXPECT_EQ(step({.resume = path, .run = "job8", .settings = settings, .saving = true}), 50);
  EXPECT_EQ(step({.resume = path, .run = "job7", .settings = others, .saving = true}), 50);
}

TEST_F(ResumeTest, TheFolderKnowsWhichRunWroteThereLast) {
  const ResumeOptions options{
      .resume = "auto", .run = "job7", .folder = files_.folder(), .saving = true};
  const ResumePoint first = DecideResume(options, [](const std::string&) {});
  EXPECT_EQ(CurrentOwner(files_.folder()),
            (FolderOwner{.training = first.training, .run = "job7"}));
  WriteSmall(files_.folder(), 9, "older");
  DecideResume(options, [](const std::string&) {});
  EXPECT_EQ(CurrentOwner(files_.folder()), (FolderOwner{.training = "older", .run = "job7"}));
}

TEST_F(ResumeTest, AutoSaysThatNoneIsGoodAndNamesEachOnce) {
  SetCurrentOwner(files_.folder(), {.training = "t"});
  const std::string path = WriteSmall(files_.folder(), 9, "t");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_EQ(StepOf(Decide("auto", false)), -1);
  EXPECT_THAT(
      told_,
      ElementsAre(AllOf(HasSubstr(path), HasSubstr("passed over")),
                  AllOf(HasSubstr("no checkpoint in " + files_.folder() + " is good"),
                        HasSubstr("training begins anew"), Not(HasSubstr("--resume auto")))));
}

TEST_F(ResumeTest, AutoTakesTheFoldersTrainingOrElseAny) {
  WriteSmall(files_.folder(), 9, "old");
  SetCurrentOwner(files_.folder(), {.training = "new"});
  const ResumePoint any = Decide("auto", false);
  EXPECT_EQ(StepOf(any), 9);
  EXPECT_EQ(any.training, "old");
  WriteSmall(files_.folder(), 3, "new");
  SetCurrentOwner(files_.folder(), {.training = "new"});
  EXPECT_EQ(StepOf(Decide("auto", false)), 3);
}

TEST_F(ResumeTest, NeverIsNeverAlsoAfterARestart) {
  WriteSmall(files_.folder(), 9, "t");
  SetCurrentOwner(files_.folder(), {.training = "t"});
  EXPECT_EQ(StepOf(Decide("never", true)), -1);
}

TEST_F(ResumeTest, APathIsTakenOnceAndThenWhatCameAfterIt) {
  const TempFiles other;
  const std::string path = WriteSmall(other.folder(), 50, "other");
  WriteSmall(other.folder(), 60, "other");
  WriteSmall(files_.folder(), 70, "old");
  EXPECT_EQ(StepOf(Decide(path, false)), 50);
  EXPECT_EQ(StepOf(Decide(path, true)), 50);
  WriteSmall(files_.folder(), 55, CurrentTraining(files_.folder()));
  EXPECT_EQ(StepOf(Decide(path, true)), 55);
  EXPECT_EQ(StepOf(Decide(path, false)), 50);
  EXPECT_EQ(StepOf(Decide(other.folder(), false)), 60);
  EXPECT_THAT(MessageOf<CheckpointError>([&] { Decide(other.Path("none"), false); }),
              HasSubstr(other.Path("none")));
}

TEST_F(ResumeTest, WithoutSavingTheFolderIsOnlyRead) {
  WriteSmall(files_.folder(), 9, "t");
  const auto decide = [&](const std::string& resume) {
    return DecideResume({.resume = resume, .folder = files_.folder()},
                        [](const std::string& text) { ADD_FAILURE() << text; });
  };
  EXPECT_TRUE(decide("auto").checkpoint);
  EXPECT_FALSE(decide("never").checkpoint);
  EXPECT_EQ(CurrentTraining(files_.folder()), "");
}

TEST(MisfitTest, NamesTheFirstClassThatIsAnotherOne) {
  const nlohmann::json ours = {{"data", {{"classes", 2}, {"class_names", {"cat", "dog"}}}}};
  EXPECT_EQ(Misfit(ours, ours), "");
  nlohmann::json other = ours;
  other["data"]["class_names"] = {"cat", "zebra"};
  EXPECT_EQ(Misfit(other, ours),
            "is of other classes: number 1 is 'zebra' there and 'dog' in this training's data");
  other["data"].erase("class_names");
  EXPECT_EQ(Misfit(other, ours), "") << "not known";
  EXPECT_EQ(Misfit(ours, other), "") << "not known";
}

TEST(MisfitTest, NamesBoth) {
  const nlohmann::json ours = {
      {"config", {{"model", "resnet18"}, {"dataset", "cifar10"}, {"lr", "0.1"}}},
      {"data", {{"classes", 10}}}};
  EXPECT_EQ(Misfit(ours, ours), "");
  nlohmann::json other = ours;
  other["config"]["lr"] = "0.2";
  other["world_size"] = 5;
  EXPECT_EQ(Misfit(other, ours), "");
  other["config"]["model"] = "linear";
  EXPECT_EQ(Misfit(other, ours), "is of --model linear, but this training is of --model resnet18");
  other = ours;
  other["data"]["classes"] = 100;
  EXPECT_EQ(Misfit(other, ours), "is of 100 classes, but this training is of 10 classes");
  EXPECT_EQ(Misfit(nlohmann::json::object(), ours),
            "is of none such, but this training is of --model resnet18");
}

}  // namespace
}  // namespace ddprun
