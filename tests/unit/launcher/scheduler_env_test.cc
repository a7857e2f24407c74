// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/scheduler_env.h"

#include <gmock/gmock.h>

#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Warning(const std::string& flags, const Variables& variables) {
  return WorldOfOneWarning(ParsedLine(flags), From(variables));
}

TEST(SchedulerEnvTest, AStepOfManyNodesInWhichEachIsAlone) {
  const Variables step = {{"SLURM_STEP_NUM_NODES", "4"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_THAT(Warning("", step), AllOf(HasSubstr("--nnodes 4"), HasSubstr("SLURM_NODEID")));
  EXPECT_EQ(Warning("--standalone", step), "");
  EXPECT_EQ(Warning("--nnodes 4 --node-rank 0 --master-addr a", step), "");
}

TEST(SchedulerEnvTest, ABatchScriptRunsOnOneNodeOfItsJob) {
  EXPECT_EQ(Warning("", {{"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_NNODES", "4"}}), "");
  EXPECT_EQ(Warning("", {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_ID", "0"}}), "");
}

TEST(SchedulerEnvTest, APodOfATrainingOperator) {
  const Variables pod = {
      {"WORLD_SIZE", "2"}, {"RANK", "1"}, {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  EXPECT_THAT(Warning("", pod), HasSubstr("WORLD_SIZE says that 2"));
  EXPECT_EQ(Warning("", {{"WORLD_SIZE", "2"}, {"RANK", "1"}}), "");
}

TEST(SchedulerEnvTest, ARunInsideAWorkerIsItsOwn) {
  EXPECT_EQ(Warning("", {{"SLURM_STEP_NUM_NODES", "4"},
                         {"SLURM_STEP_ID", "0"},
                         {"TORCHELASTIC_RUN_ID", "outer"}}),
            "");
}

TEST(SchedulerEnvTest, TheWarningReachesThePerson) {
  const Options options =
      ParsedLine("", {{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_RANK", "3"}});
  ASSERT_EQ(options.warnings.size(), 1u);
  EXPECT_THAT(options.warnings.front(), HasSubstr("OMPI_COMM_WORLD_SIZE says that 8"));
}

}  // namespace
}  // namespace ddprun
