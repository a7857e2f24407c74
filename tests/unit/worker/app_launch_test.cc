// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Environ = std::map<std::string, std::string>;

GetEnv Of(const Environ& environ) {
  return [environ](const std::string& name) -> std::optional<std::string> {
    const auto it = environ.find(name);
    if (it == environ.end()) return std::nullopt;
    return it->second;
  };
}

std::string Refusal(std::int64_t world_size, const Environ& environ) {
  return MessageOf<UsageError>([&] { PlanLaunch(world_size, Of(environ)); });
}

const Environ kMpirunOfTwo = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};

TEST(Launch, SpawnsOnlyWhereNobodyElseHas) {
  EXPECT_FALSE(PlanLaunch(std::nullopt, Of({})).spawn);
  EXPECT_FALSE(PlanLaunch(1, Of({})).spawn);
  EXPECT_TRUE(PlanLaunch(2, Of({})).spawn);
  // Where rank 0 is to be found says nothing about who starts the ranks.
  EXPECT_TRUE(PlanLaunch(2, Of({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "12355"}})).spawn);
  EXPECT_FALSE(PlanLaunch(2, Of({{"WORLD_SIZE", "2"}, {"RANK", "1"}})).spawn);
  EXPECT_FALSE(PlanLaunch(2, Of(kMpirunOfTwo)).spawn);
}

TEST(Launch, ARankByHandTakesItAsTheWorldsSize) {
  const LaunchPlan plan = PlanLaunch(2, Of({{"RANK", "1"}}));
  EXPECT_FALSE(plan.spawn);
  EXPECT_TRUE(plan.sets_world_size);
  EXPECT_FALSE(PlanLaunch(2, Of({{"RANK", "1"}, {"WORLD_SIZE", "2"}})).sets_world_size);
}

TEST(Launch, AnotherNumberThanTheLaunchersIsRefused) {
  EXPECT_THAT(Refusal(3, {{"WORLD_SIZE", "2"}, {"RANK", "0"}}),
              AllOf(HasSubstr("--world-size is 3"), HasSubstr("WORLD_SIZE is 2")));
  EXPECT_THAT(Refusal(1, kMpirunOfTwo), HasSubstr("mpirun has started 2 processes"));
}

TEST(Launch, AFileSetsWhatIsNotSet) {
  const TempFiles files;
  const std::string token(64, 'a');
  const std::string path = files.Write(
      ".env",
      "DDPRUN_TEST_ONE=file\nexport DDPRUN_TEST_TWO='of file'\nDDPRUN_TOKEN=" + token + "\n");
  setenv("DDPRUN_TEST_ONE", "environment", 1);
  unsetenv("DDPRUN_TEST_TWO");
  unsetenv("DDPRUN_TOKEN");
  SetVariablesOfFile(path);
  EXPECT_STREQ(std::getenv("DDPRUN_TEST_ONE"), "environment");
  EXPECT_STREQ(std::getenv("DDPRUN_TEST_TWO"), "of file");
  EXPECT_EQ(std::getenv("DDPRUN_TOKEN"), nullptr);
}

TEST(Launch, AFileThatIsWrongIsNamedWithItsLine) {
  const TempFiles files;
  const std::string path = files.Write(".env", "RANK=0\nWORLD_SIZE 2\n");
  EXPECT_THAT(MessageOf<UsageError>([&] { SetVariablesOfFile(path); }),
              AllOf(HasSubstr("--env-file"), HasSubstr("line 2"), HasSubstr(path)));
  EXPECT_THAT(MessageOf<UsageError>([&] { SetVariablesOfFile(files.Path("none")); }),
              HasSubstr("No such file"));
  EXPECT_THAT(MessageOf<UsageError>([&] { SetVariablesOfFile(files.folder()); }),
              HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace ddprun
