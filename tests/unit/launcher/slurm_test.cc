// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/parse_options.h"
#include "launcher/command_line/scheduler_env.h"
#include "launcher/command_line/slurm_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ddprun {
namespace {

using Variables = std::map<std::string, std::string>;

GetVariable From(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

const Variables kStep = {{"SLURM_JOB_ID", "17"},
                         {"SLURM_STEP_ID", "2"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_PROCID", "3"},
                         {"SLURM_STEP_NODELIST", "n[08-09,1]"}};

TEST(Slurm, AStepOfSeveralTasksIsARun) {
  const std::optional<SlurmStep> step = ReadSlurmStep(From(kStep));
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->nodes, 4);
  EXPECT_EQ(step->node_rank, 3);
  EXPECT_EQ(step->master_addr, "n08");
  EXPECT_EQ(step->run_id, "slurm-17.2");
}

TEST(Slurm, StepsDoNotShareAPort) {
  Variables other = kStep;
  other["SLURM_STEP_ID"] = "3";
  EXPECT_NE(ReadSlurmStep(From(kStep))->master_port, ReadSlurmStep(From(other))->master_port);
  other["SLURM_PROCID"] = "0";
  Variables same = other;
  same["SLURM_PROCID"] = "1";
  EXPECT_EQ(ReadSlurmStep(From(same))->master_port, ReadSlurmStep(From(other))->master_port);
}

TEST(Slurm, ABatchScriptOrASingleTaskIsNoRunOfSeveralNodes) {
  Variables batch = kStep;
  batch.erase("SLURM_STEP_ID");
  EXPECT_FALSE(ReadSlurmStep(From(batch)).has_value());
  Variables single = kStep;
  single["SLURM_STEP_NUM_TASKS"] = "1";
  single["SLURM_PROCID"] = "0";
  EXPECT_FALSE(ReadSlurmStep(From(single)).has_value());
  EXPECT_FALSE(ReadSlurmStep(From({})).has_value());
  Variables odd = kStep;
  odd["SLURM_PROCID"] = "x";
  EXPECT_FALSE(ReadSlurmStep(From(odd)).has_value());
}

Options ParseInStep(const std::vector<std::string>& arguments) {
  auto options = ParseOptions(arguments, From(kStep));
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() ? std::get<Options>(*std::move(options)) : Options();
}

TEST(Slurm, ATasksNumberIsNoRankThatItAsksForIfRanksHaveAnotherOrder) {
  EXPECT_TRUE(ParseInStep({"train"}).asks_for_rank);
  const Options ordered = ParseInStep({"--rank-order", "topology", "train"});
  EXPECT_EQ(ordered.node_rank, 3);  // task 0 hosts the rendezvous
  EXPECT_FALSE(ordered.asks_for_rank);
  EXPECT_TRUE(ParseInStep({"--rank-order", "host", "--nnodes", "4", "--node-rank", "1", "train"})
                  .asks_for_rank);
}

TEST(Slurm, TheStepSaysWhatTheFlagsDoNot) {
  const Options all = ParseInStep({"train"});
  EXPECT_EQ(all.nodes, 4);
  EXPECT_EQ(all.node_rank, 3);
  EXPECT_EQ(all.master_addr, "n08");
  EXPECT_EQ(all.run_id, "slurm-17.2");
  const Options some = ParseInStep({"--nnodes", "4", "--rdzv-endpoint", "h:1", "train"});
  EXPECT_EQ(some.node_rank, 3);
  EXPECT_FALSE(some.master_addr.has_value());
  const Options port = ParseInStep({"--master-port", "7", "train"});
  EXPECT_EQ(port.master_port, 7);
  // Jobs that share a node must not meet at one port.
  const Options address = ParseInStep({"--master-addr", "x", "train"});
  EXPECT_EQ(address.master_addr, "x");
  EXPECT_EQ(address.master_port, all.master_port);
}

TEST(Slurm, FlagsComeBeforeTheStep) {
  EXPECT_EQ(ParseInStep({"--standalone", "train"}).nodes, 1);
  EXPECT_EQ(ParseInStep({"--nnodes", "1", "train"}).node_rank, std::nullopt);
  EXPECT_EQ(
      ParseInStep({"--nnodes", "4", "--node-rank", "1", "--master-addr", "x", "train"}).node_rank,
      1);
  EXPECT_EQ(ParseInStep({"--rdzv-endpoint", "h:1", "train"}).nodes, 1);
  // Ranks come as the nodes do where their number is open.
  EXPECT_EQ(ParseInStep({"--nnodes", "1:4", "--rdzv-endpoint", "h:1", "train"}).node_rank,
            std::nullopt);
}

TEST(Slurm, AnInteractiveStepSaysWhomItWaitsFor) {
  auto shell = kStep;
  shell["SLURM_PTY_PORT"] = "40001";
  const auto warnings = [](const std::map<std::string, std::string>& variables,
                           const std::vector<std::string>& arguments) {
    auto options = ParseOptions(arguments, From(variables));
    EXPECT_TRUE(options.ok()) << options.status();
    return std::get<Options>(*std::move(options)).warnings;
  };
  EXPECT_THAT(warnings(shell, {"train"}),
              testing::ElementsAre(testing::HasSubstr(
                  "task 3 of the 4 of an interactive Slurm step, and waits until ddprun is started "
                  "in all of them; give --standalone")));
  EXPECT_THAT(warnings(shell, {"--standalone", "train"}), testing::IsEmpty());
  EXPECT_THAT(warnings(kStep, {"train"}), testing::IsEmpty());
}

TEST(Slurm, EachElementOfAnArrayAndEachAttemptIsARunOfItsOwn) {
  Variables element = kStep;
  element["SLURM_ARRAY_JOB_ID"] = "12";
  element["SLURM_ARRAY_TASK_ID"] = "5";
  EXPECT_EQ(ReadSlurmStep(From(element))->run_id, "slurm-12_5.2");
  // By the number of the element's own job.
  EXPECT_EQ(ReadSlurmStep(From(element))->master_port, ReadSlurmStep(From(kStep))->master_port);
  Variables next = element;
  next["SLURM_ARRAY_TASK_ID"] = "6";
  next["SLURM_JOB_ID"] = "18";
  EXPECT_EQ(ReadSlurmStep(From(next))->run_id, "slurm-12_6.2");
  EXPECT_NE(ReadSlurmStep(From(next))->master_port, ReadSlurmStep(From(element))->master_port);
  next["SLURM_RESTART_COUNT"] = "0";
  EXPECT_EQ(ReadSlurmStep(From(next))->run_id, "slurm-12_6.2");
  next["SLURM_RESTART_COUNT"] = "2";
  EXPECT_EQ(ReadSlurmStep(From(next))->run_id, "slurm-12_6.2-r2");
}

TEST(Slurm, GpusThatAreNotThereAreNotIgnored) {
  const auto check = [](const Variables& variables, int devices,
                        const std::optional<std::string>& visible, const Options& options = {}) {
    return std::string(CheckSlurmGpus(options, devices, visible, From(variables)).message());
  };
  const Variables two = {{"SLURM_GPUS_ON_NODE", "2"}};
  EXPECT_THAT(
      check(two, 0, "0,1"),
      testing::HasSubstr("Slurm gave this job 2 GPUs on this node (SLURM_GPUS_ON_NODE), and "
                         "no device is visible here"));
  EXPECT_THAT(check({{"SLURM_STEP_GPUS", "3"}}, 0, std::nullopt),
              testing::HasSubstr("1 GPU on this node (SLURM_STEP_GPUS)"));
  EXPECT_THAT(check({{"SLURM_JOB_GPUS", "0,1,2"}}, 0, std::nullopt), testing::HasSubstr("3 GPUs"));
  EXPECT_EQ(check(two, 2, "0,1"), "");
  EXPECT_EQ(check(two, 0, ""), "");
  EXPECT_EQ(check(two, 0, "-1"), "");
  Options cpu;
  cpu.proc_per_node = ProcPerNode::kCpu;
  EXPECT_EQ(check(two, 0, "0,1", cpu), "");
  // A step without GPUs of a job that has some.
  EXPECT_EQ(check({{"SLURM_GPUS_ON_NODE", "0"}, {"SLURM_JOB_GPUS", "0"}}, 0, std::nullopt), "");
  EXPECT_EQ(check({}, 0, std::nullopt), "");
}

TEST(Slurm, AShellOnOneOfSeveralNodesSaysThatItIsAlone) {
  const auto warning = [](Variables variables, const std::string& flag = "") {
    variables["SLURM_JOB_NUM_NODES"] = "2";
    auto options = ParseOptions(
        flag.empty() ? std::vector<std::string>{"train"} : std::vector<std::string>{flag, "train"},
        From(variables));
    EXPECT_TRUE(options.ok()) << options.status();
    return IdleNodesWarning(std::get<Options>(*options), From(variables));
  };
  EXPECT_THAT(warning({{"SLURM_STEP_ID", "4294967290"}}),
              testing::HasSubstr("one of the 2 nodes of its Slurm job"));
  EXPECT_THAT(warning({{"SLURM_PTY_PORT", "7"}}), testing::HasSubstr("give --srun"));
  EXPECT_EQ(warning({{"SLURM_PTY_PORT", "7"}}, "--srun"), "");
  EXPECT_EQ(warning({{"SLURM_PTY_PORT", "7"}}, "--standalone"), "");
  EXPECT_EQ(warning({}), "");  // a batch script
}

TEST(Slurm, AnAllocationNamesItsHosts) {
  const auto hosts = ReadSlurmAllocation(From({{"SLURM_JOB_NODELIST", "n[1-2]"}}));
  ASSERT_TRUE(hosts.ok());
  EXPECT_THAT(*hosts,
              testing::ElementsAre(HostEntry{"n1", std::nullopt}, HostEntry{"n2", std::nullopt}));
  EXPECT_THAT(std::string(ReadSlurmAllocation(From({})).status().message()),
              testing::HasSubstr("salloc or sbatch"));
  EXPECT_THAT(std::string(ReadSlurmAllocation(From({{"SLURM_HET_SIZE", "2"}})).status().message()),
              testing::HasSubstr("this job has 2 components; leave it out and give srun "
                                 "--het-group=0-1 ddprun"));
}

}  // namespace
}  // namespace ddprun
