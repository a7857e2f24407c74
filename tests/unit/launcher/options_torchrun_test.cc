// SPDX-License-Identifier: Apache-2.0
// torchrun's flags that mean something else here, or nothing.
#include "launcher/options/run_flags.h"

#include <gmock/gmock.h>

#include "rendezvous/base/limits.h"
#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(OptionsTorchrunTest, FlagsWithoutEffectAreTakenAndNoted) {
  const Options options = ParsedLine(
      "--monitor-interval 0.5 --start_method=fork --event-log-handler console --use-env");
  EXPECT_THAT(options.notes, ElementsAre(HasSubstr("--monitor-interval"),
                                         HasSubstr("--start-method"), HasSubstr("--use-env")));
  EXPECT_TRUE(options.logs_events_to_console);
  EXPECT_FALSE(ParsedLine("").logs_events_to_console);
  EXPECT_THAT(ParsedLine("").notes, IsEmpty());
  EXPECT_TRUE(ParsedLine("", {{"PET_EVENT_LOG_HANDLER", "console"}}).logs_events_to_console);
}

TEST(OptionsTorchrunTest, TheConsoleHandlerIsAnEventLogOnStderr) {
  EXPECT_EQ(ParsedLine("--event-log-handler console").observe.event_log, "/dev/stderr");
  EXPECT_EQ(ParsedLine("--event-log-handler console --event-log f").observe.event_log, "f");
  EXPECT_EQ(ParsedLine("--event-log-handler null").observe.event_log, "");
  EXPECT_EQ(ParsedLine("--event-log-handler dynamic_rendezvous").observe.event_log, "");
}

TEST(OptionsTorchrunTest, TheirValuesAreStillChecked) {
  EXPECT_THAT(LineError("--monitor-interval 0"), HasSubstr("--monitor-interval '0' is not"));
  EXPECT_THAT(LineError("--start-method thread"),
              HasSubstr("'thread' is not spawn, fork or forkserver"));
  EXPECT_THAT(LineError("--event-log-handler kafka"), HasSubstr("'kafka' is not null, console"));
}

TEST(OptionsTorchrunTest, WhatCannotBeIsSaidInASentence) {
  EXPECT_EQ(ParsedLine("--logs-specs default").logs.log_dir, "");
  EXPECT_THAT(LineError("--logs-specs mine"),
              AllOf(HasSubstr("--logs-specs 'mine'"), HasSubstr("Python class")));
  for (const char* backend : {"etcd", "etcd-v2"}) {
    EXPECT_THAT(LineError(std::string("--rdzv-backend ") + backend),
                AllOf(HasSubstr(backend), HasSubstr("--journal")));
  }
  EXPECT_THAT(LineError("--rdzv-backend mpi"), AllOf(HasSubstr("'mpi'"), HasSubstr("c10d")));
  EXPECT_THAT(LineError("--nproc-per-node hpu"),
              AllOf(HasSubstr("'hpu'"), HasSubstr("give their number")));
}

TEST(OptionsTorchrunTest, EverySpellingOfAFlag) {
  for (const char* flag : {"--nproc-per-node", "--nproc_per_node", "--nproc-per_node", "--nproc"}) {
    EXPECT_EQ(ParsedLine(std::string(flag) + " 3").proc_per_node_number, 3) << flag;
    EXPECT_EQ(ParsedLine(std::string(flag) + "=3").proc_per_node_number, 3) << flag;
  }
  EXPECT_EQ(ParsedLine("--max_restart 2").restarts.max_restarts, 2);
  // The beginning of several is none of them.
  EXPECT_THAT(LineError("--rdzv x"), HasSubstr("unknown flag --rdzv"));
  EXPECT_THAT(LineError("--nproc-per-nod-e 2"), HasSubstr("did you mean --nproc-per-node?"));
  // None of the program's arguments is changed, nor is a flag's value.
  const auto parsed = ParseOptions({"--role", "--nproc", "prog", "--nproc_per_node"}, From({}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(std::get<Options>(*parsed).program, ElementsAre("prog", "--nproc_per_node"));
}

TEST(OptionsTorchrunTest, ARunThatNobodyNamedIsNotCalledNone) {
  EXPECT_EQ(ParsedLine("--rdzv-id none").run_id, "");
  EXPECT_EQ(ParsedLine("--rdzv-id nonesuch").run_id, "nonesuch");
}

TEST(OptionsTorchrunTest, StandaloneComesBeforeWhatSaysWhereToMeet) {
  const Options options = ParsedLine(
      "--standalone --nnodes 1:4 --rdzv-endpoint h:1 --rdzv-id job --rdzv-conf is_host=1");
  EXPECT_EQ(options.nodes, 1);
  EXPECT_EQ(options.endpoint, std::nullopt);
  EXPECT_EQ(options.run_id, "");
  EXPECT_EQ(options.is_host, std::nullopt);
  EXPECT_THAT(LineError("--standalone --nnodes 2"),
              HasSubstr("--standalone is for one node, and --nnodes is 2"));
}

// A worker in the pod of a TrainJob has the pod's variables.
TEST(OptionsTorchrunTest, StandaloneComesBeforeTheVariablesOfAPod) {
  const std::map<std::string, std::string> pod = {{"PET_NNODES", "2"},
                                                  {"PET_NODE_RANK", "1"},
                                                  {"PET_MASTER_ADDR", "job-node-0-0.job"},
                                                  {"PET_MASTER_PORT", "29500"}};
  const auto alone = ParseOptions({"--standalone", "train"}, From(pod));
  ASSERT_TRUE(alone.ok()) << alone.status();
  const Options& options = std::get<Options>(*alone);
  EXPECT_EQ(options.nodes, 1);
  EXPECT_EQ(options.node_rank, std::nullopt);
  EXPECT_EQ(options.master_addr, std::nullopt);
  EXPECT_EQ(options.master_port, std::nullopt);
  const auto port = ParseOptions({"--standalone", "--master-port", "7", "train"}, From(pod));
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_EQ(std::get<Options>(*port).master_port, 7);
  EXPECT_FALSE(ParseOptions({"--standalone", "--nnodes", "2", "train"}, From(pod)).ok());
  const auto both = ParseOptions({"train"}, From({{"PET_NNODES", "2"}, {"PET_STANDALONE", "1"}}));
  EXPECT_THAT(std::string(both.status().message()),
              HasSubstr("PET_STANDALONE is for one node, and PET_NNODES is 2"));
}

TEST(OptionsTorchrunTest, FlagsBehindTheProgramAreNoted) {
  const auto warnings = [](const std::vector<std::string>& arguments) {
    auto options = ParseOptions(arguments, From({}));
    EXPECT_TRUE(options.ok()) << options.status();
    return std::get<Options>(*std::move(options)).warnings;
  };
  EXPECT_THAT(warnings({"a.py", "--nproc-per-node", "2"}),
              ElementsAre("--nproc-per-node stands behind the program a.py, which gets it; flags "
                          "of ddprun stand before the program"));
  EXPECT_THAT(warnings({"a.py", "--nproc_per_node=2"}), ElementsAre(HasSubstr("stands behind")));
  EXPECT_THAT(warnings({"--nproc-per-node", "2", "a.py", "--nproc-per-node", "2"}), IsEmpty());
  EXPECT_THAT(warnings({"a.py", "--epochs", "2", "--gpus", "1"}), IsEmpty());
}

TEST(OptionsTorchrunTest, FlagsOfOtherLaunchersAreKnown) {
  const auto error = [](const std::string& flag) {
    return std::string(ParseOptions({flag, "2", "a.py"}, From({})).status().message());
  };
  EXPECT_THAT(error("--num_processes"), HasSubstr("(did you mean --ntasks?)"));
  EXPECT_THAT(error("--num-gpus"), HasSubstr("(did you mean --nproc-per-node?)"));
  EXPECT_THAT(error("--machine_rank"), HasSubstr("(did you mean --node-rank?)"));
  EXPECT_THAT(error("--max-restart-s"), HasSubstr("(did you mean --max-restarts?)"));
}

TEST(OptionsTorchrunTest, PortZeroIsAnyFreeOneForANodeAlone) {
  EXPECT_EQ(ParsedLine("--rdzv-backend c10d --rdzv-endpoint localhost:0").endpoint, std::nullopt);
  EXPECT_EQ(ParsedLine("--master-port 0").master_port, std::nullopt);
  EXPECT_THAT(LineError("--nnodes 2 --rdzv-endpoint h:0"),
              HasSubstr("--rdzv-endpoint with port 0"));
  EXPECT_THAT(LineError("--nnodes 2 --node-rank 0 --master-addr h --master-port 0"),
              HasSubstr("--master-port with port 0"));
}

TEST(OptionsTorchrunTest, BracketsOfAMasterAddressAreNotOfTheAddress) {
  EXPECT_EQ(ParsedLine("--master-addr [::1]").master_addr, "::1");
}

TEST(OptionsTorchrunTest, RunPathComesBeforeNoPython) {
  EXPECT_TRUE(ParsedLine("--run-path --no-python").run_path);
  EXPECT_TRUE(ParsedLine("--run_path --module").run_path);
}

}  // namespace
}  // namespace ddprun
