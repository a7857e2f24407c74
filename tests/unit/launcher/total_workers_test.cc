// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/total_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

std::string NodesTimesWorkers(const std::string& flags, const Variables& variables = {}) {
  const Options options = ParsedLine(flags, variables);
  EXPECT_EQ(options.nodes, options.nodes_min);
  return std::to_string(options.nodes) + "x" + std::to_string(options.proc_per_node_number);
}

const std::string kMaster = " --master-addr a --node-rank 0";
const Variables kStepOfFour = {{"SLURM_JOB_ID", "7"},
                               {"SLURM_STEP_ID", "0"},
                               {"SLURM_STEP_NUM_TASKS", "4"},
                               {"SLURM_STEP_NODELIST", "n[1-4]"},
                               {"SLURM_PROCID", "1"}};

TEST(TotalWorkersTest, OnOneNodeTheTotalIsTheNodes) {
  for (const char* flags : {"-n 4", "-np 4", "-n4", "--ntasks=4", "-n 4 -ppn 4",
                            "-np 4 --standalone", "-n 4 --npernode 4", "-n 4 --nnodes 1"})
    EXPECT_EQ(NodesTimesWorkers(flags), "1x4") << flags;
  EXPECT_EQ(NodesTimesWorkers("", {{"PET_NTASKS", "3"}}), "1x3");
}

TEST(TotalWorkersTest, EveryWordForTheWorkersOfANode) {
  for (const char* flags :
       {"-ppn 3", "--ppn 3", "-npernode 3", "--npernode=3", "--nproc 3", "--np 3"})
    EXPECT_EQ(NodesTimesWorkers(flags), "1x3") << flags;
}

TEST(TotalWorkersTest, WhatIsMissingFollows) {
  EXPECT_EQ(NodesTimesWorkers("-n 8 --nnodes 2" + kMaster), "2x4");
  EXPECT_EQ(NodesTimesWorkers("-n 8 -ppn 4" + kMaster), "2x4");
  EXPECT_EQ(NodesTimesWorkers("-n 8 -ppn 4 --nnodes 2" + kMaster), "2x4");
  EXPECT_EQ(NodesTimesWorkers("-n 8 -ppn 2 --rdzv-endpoint h"), "4x2");
}

TEST(TotalWorkersTest, AStepOfSlurmHasItsNodes) {
  EXPECT_EQ(NodesTimesWorkers("-n 8", kStepOfFour), "4x2");
  EXPECT_EQ(NodesTimesWorkers("-n 8 -ppn 2", kStepOfFour), "4x2");
  EXPECT_EQ(LineError("-n 8 -ppn 4", kStepOfFour),
            "-n 8 contradicts --nproc-per-node 4 on 4 nodes, which makes 16; leave one of the "
            "numbers out");
}

TEST(TotalWorkersTest, ContradictionsAreOneSentence) {
  EXPECT_EQ(LineError("-n 8 -ppn 3 --nnodes 2" + kMaster),
            "-n 8 contradicts --nproc-per-node 3 on 2 nodes, which makes 6; leave one of the "
            "numbers out");
  EXPECT_EQ(LineError("-np 6 -ppn 4"),
            "-n 6 is no multiple of --nproc-per-node 4, which is the number on each node; change "
            "one of them, or leave the second one out");
  EXPECT_THAT(LineError("-n 2", {{"PET_NPROC_PER_NODE", "4"}}),
              HasSubstr("-n 2 is no multiple of PET_NPROC_PER_NODE 4"));
  EXPECT_EQ(LineError("-n 7 --nnodes 2" + kMaster),
            "-n 7 cannot be divided evenly among 2 nodes; give a multiple of 2, or "
            "--nproc-per-node on each node");
  EXPECT_THAT(LineError("-n 8 -ppn 4"),
              HasSubstr("-n 8 with 4 workers on each node needs 2 nodes, and no other node is "
                        "named; give hosts with -H"));
  EXPECT_THAT(LineError("-n 8 --nnodes 1:4 --rdzv-endpoint h"),
              HasSubstr("-n 8 needs a fixed number of nodes, and --nnodes is 1:4"));
  EXPECT_THAT(LineError("-n 8 --nproc-per-node gpu"),
              HasSubstr("-n 8 and --nproc-per-node gpu both say how many"));
  EXPECT_THAT(LineError("-n 0"), HasSubstr("--ntasks '0' is not a whole number from 1"));
  EXPECT_THAT(LineError("-n 5000"), HasSubstr("-n 5000 are 5000 workers on a node, and at most"));
}

TEST(TotalWorkersTest, AbbreviationsOfOtherFlagsStay) {
  EXPECT_EQ(NodesTimesWorkers("--nn 2 --nproc 3" + kMaster), "2x3");
  EXPECT_TRUE(ParsedLine("--no-py").no_python);
  EXPECT_THAT(LineError("--n 3"), HasSubstr("unknown flag --n"));
}

}  // namespace
}  // namespace ddprun
