// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/kubernetes_env.h"

#include <gmock/gmock.h>

#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

Variables PodOfJob(const std::string& index) {
  return {
      {"JOB_COMPLETION_INDEX", index}, {"DDPRUN_JOB_NAME", "train"}, {"DDPRUN_JOB_UID", "5a1c"},
      {"DDPRUN_SERVICE", "workers"},   {"PET_NNODES", "4"},          {"DDPRUN_JOBSET_NAME", ""}};
}

Variables PodOfJobSet(const std::string& job, const std::string& index) {
  return {{"JOB_COMPLETION_INDEX", index},
          {"DDPRUN_JOB_NAME", "big-node-" + job},
          {"DDPRUN_JOB_UID", "77"},
          {"DDPRUN_SERVICE", "workers"},
          {"DDPRUN_JOBSET_NAME", "big"},
          {"DDPRUN_JOBSET_UID", "9f"},
          {"DDPRUN_JOBSET_REPLICATEDJOB_NAME", "node"},
          {"DDPRUN_JOBSET_JOBS", "2"},
          {"DDPRUN_JOBSET_JOB_INDEX", job},
          {"DDPRUN_JOBSET_RESTART_ATTEMPT", "3"},
          {"PET_NNODES", "4"}};
}

TEST(KubernetesEnvTest, APodOfAnIndexedJobIsANode) {
  const Options options = ParsedLine("", PodOfJob("2"));
  EXPECT_EQ(options.node_rank, 2);
  EXPECT_EQ(options.run_id, "job-5a1c");
  ASSERT_TRUE(options.endpoint.has_value());
  EXPECT_EQ(options.endpoint->host, "train-0.workers");
  EXPECT_EQ(options.endpoint->port, kPortDefault);
  EXPECT_EQ(options.is_host, false);
}

TEST(KubernetesEnvTest, Pod0HostsTheServiceBeforeItsNameIsInTheDns) {
  const Options options = ParsedLine("--master-port 4000", PodOfJob("0"));
  EXPECT_EQ(options.is_host, true);
  EXPECT_EQ(options.endpoint->port, 4000);
}

TEST(KubernetesEnvTest, TheJobsOfAJobSetAreOneRun) {
  const Options options = ParsedLine("", PodOfJobSet("1", "1"));
  EXPECT_EQ(options.node_rank, 3);
  EXPECT_EQ(options.endpoint->host, "big-node-0-0.big");
  EXPECT_EQ(options.is_host, false);
  EXPECT_EQ(ParsedLine("", PodOfJobSet("0", "0")).is_host, true);
  EXPECT_EQ(ParsedLine("", PodOfJobSet("1", "0")).is_host, false);
}

TEST(KubernetesEnvTest, AnotherAttemptIsAnotherRun) {
  Variables pod = PodOfJobSet("0", "1");
  EXPECT_EQ(ParsedLine("", pod).run_id, "jobset-9f-3");
  pod["DDPRUN_JOBSET_RESTART_ATTEMPT"] = "4";
  EXPECT_EQ(ParsedLine("", pod).run_id, "jobset-9f-4");
}

TEST(KubernetesEnvTest, AJobSetMayNameItsSubdomain) {
  Variables pod = PodOfJobSet("0", "1");
  pod["DDPRUN_JOBSET_SUBDOMAIN"] = "net";
  EXPECT_EQ(ParsedLine("", pod).endpoint->host, "big-node-0-0.net");
}

TEST(KubernetesEnvTest, ATrainJobNamesRankAndAddress) {
  const Options options = ParsedLine("", {{"JOB_COMPLETION_INDEX", "0"},
                                          {"PET_NNODES", "2"},
                                          {"PET_NODE_RANK", "0"},
                                          {"PET_MASTER_ADDR", "mine-node-0-0.mine"},
                                          {"PET_MASTER_PORT", "29500"}});
  EXPECT_EQ(options.node_rank, 0);
  EXPECT_EQ(options.endpoint->host, "mine-node-0-0.mine");
  EXPECT_EQ(options.is_host, true);
  EXPECT_EQ(options.run_id, "");
}

TEST(KubernetesEnvTest, AServiceOfItsOwnIsLeftAlone) {
  const Options options = ParsedLine("--rdzv-endpoint service:29500", PodOfJob("0"));
  EXPECT_EQ(options.endpoint->host, "service");
  EXPECT_EQ(options.is_host, std::nullopt);
  EXPECT_EQ(options.node_rank, 0);
  EXPECT_EQ(options.run_id, "job-5a1c");
}

TEST(KubernetesEnvTest, WithMinAndMaxTheServiceAssignsTheRanks) {
  const Options options = ParsedLine("--nnodes 1:4", PodOfJob("3"));
  EXPECT_EQ(options.node_rank, std::nullopt);
  EXPECT_EQ(options.is_host, false);
  EXPECT_EQ(ParsedLine("--nnodes 1:4", PodOfJob("0")).is_host, true);
}

TEST(KubernetesEnvTest, FlagsOverrideThePod) {
  const Options options = ParsedLine("--node-rank 1 --rdzv-id mine --master-addr a", PodOfJob("2"));
  EXPECT_EQ(options.node_rank, 1);
  EXPECT_EQ(options.run_id, "mine");
  EXPECT_EQ(options.endpoint->host, "a");
}

TEST(KubernetesEnvTest, APodMayRunAlone) {
  for (const char* flags : {"--standalone --nnodes 1", "--nnodes 1"}) {
    const Options options = ParsedLine(flags, PodOfJob("2"));
    EXPECT_FALSE(options.endpoint.has_value()) << flags;
    EXPECT_FALSE(options.node_rank.has_value()) << flags;
  }
}

TEST(KubernetesEnvTest, MorePodsThanNodes) {
  EXPECT_THAT(LineError("", PodOfJob("4")), HasSubstr("JOB_COMPLETION_INDEX is 4"));
  EXPECT_THAT(LineError("--nnodes 5", PodOfJobSet("1", "0")), HasSubstr("by the 2 replicas"));
}

TEST(KubernetesEnvTest, WhatIsNoNumberIsNoPod) {
  Variables pod = PodOfJob("two");
  EXPECT_FALSE(ReadKubernetesPod(From(pod)).has_value());
  pod = PodOfJob("1");
  pod["DDPRUN_JOBSET_JOBS"] = "0";
  EXPECT_FALSE(ReadKubernetesPod(From(pod)).has_value());
}

TEST(KubernetesEnvTest, InAPodTheVerdictIsTheTerminationMessage) {
  const Variables pod = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  EXPECT_EQ(ParsedLine("", pod).verdict.termination_log, "/dev/termination-log");
  EXPECT_EQ(ParsedLine("--termination-log /run/end", pod).verdict.termination_log, "/run/end");
  EXPECT_EQ(ParsedLine("").verdict.termination_log, "");
  Variables nested = pod;
  nested["TORCHELASTIC_RUN_ID"] = "outer";
  EXPECT_EQ(ParsedLine("", nested).verdict.termination_log, "");
}

}  // namespace
}  // namespace ddprun
