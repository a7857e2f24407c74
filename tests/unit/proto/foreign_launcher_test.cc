// SPDX-License-Identifier: Apache-2.0
#include "proto/foreign_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using Environ = std::map<std::string, std::string>;

GetEnv Of(const Environ& environ) {
  return [environ](const std::string& name) -> std::optional<std::string> {
    const auto it = environ.find(name);
    if (it == environ.end()) return std::nullopt;
    return it->second;
  };
}

absl::StatusOr<WorkerEnv> Read(const Environ& environ) { return FromEnviron(Of(environ)); }

Environ With(Environ environ, const Environ& more) {
  for (const auto& [name, value] : more) environ[name] = value;
  return environ;
}

// The third of four processes that Open MPI 4.1 has started on one host, as `mpirun env` shows it.
const Environ kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                          {"PMIX_NAMESPACE", "537460737"},     {"PMIX_RANK", "2"}};
// One of two that MPICH 4.0 has started.
const Environ kHydra = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
// The last of five tasks on three nodes, by Slurm 22.05.
const Environ kSrun = {{"SLURM_JOB_ID", "17"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "5"},
                       {"SLURM_STEP_NUM_NODES", "3"},
                       {"SLURM_PROCID", "4"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                       {"SLURM_STEP_NODELIST", "gpu[03,07-08]"}};

TEST(ForeignLauncherTest, OpenMpiOnOneHostNeedsNothingElse) {
  const auto env = Read(kOpenMpi);
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 2);
  EXPECT_EQ(env->world_size, 4);
  EXPECT_EQ(env->local_rank, 2);
  EXPECT_EQ(env->local_world_size, 4);
  EXPECT_EQ(env->group_world_size, 1);
  EXPECT_EQ(env->master_addr, "127.0.0.1");
}

TEST(ForeignLauncherTest, TwoJobsOfAMachineHaveTheirOwnPorts) {
  const auto first = Read(kOpenMpi);
  const auto same = Read(With(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}}));
  const auto other = Read(With(kOpenMpi, {{"PMIX_NAMESPACE", "537460738"}}));
  ASSERT_TRUE(first.ok() && same.ok() && other.ok());
  EXPECT_EQ(first->master_port, same->master_port);
  EXPECT_NE(first->master_port, other->master_port);
  EXPECT_GE(first->master_port, 20'000);
  EXPECT_LT(first->master_port, 29'000);
}

TEST(ForeignLauncherTest, HydraIsRead) {
  const auto env = Read(kHydra);
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 1);
  EXPECT_EQ(env->world_size, 2);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->master_addr, "127.0.0.1");
  EXPECT_EQ(env->master_port, 29'500);
}

TEST(ForeignLauncherTest, SrunOnSeveralNodesMeetsAtTheFirst) {
  const auto env = Read(kSrun);
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 4);
  EXPECT_EQ(env->world_size, 5);
  EXPECT_EQ(env->local_rank, 0);
  EXPECT_EQ(env->local_world_size, 1);
  EXPECT_EQ(env->group_rank, 2);
  EXPECT_EQ(env->group_world_size, 3);
  EXPECT_EQ(env->master_addr, "gpu03");
}

TEST(ForeignLauncherTest, ABatchScriptIsAlone) {
  Environ batch = kSrun;
  batch.erase("SLURM_STEP_ID");
  const auto env = Read(batch);
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->world_size, 1);
}

TEST(ForeignLauncherTest, MpirunInsideAStepOfSlurmIsWhoStartedTheProcess) {
  for (const Environ& mpi : {kOpenMpi, kHydra}) {
    const auto env = Read(With(kSrun, mpi));
    ASSERT_TRUE(env.ok()) << env.status();
    EXPECT_LT(env->world_size, 5);
  }
}

TEST(ForeignLauncherTest, WhatIsSetGoesOverIt) {
  const auto env = Read(With(kOpenMpi, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->master_addr, "a");
  EXPECT_EQ(env->master_port, 1);
  // ddprun that mpirun has started sets all of a worker's.
  const auto own = Read(With(
      kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->rank, 0);
  EXPECT_EQ(own->world_size, 8);
}

TEST(ForeignLauncherTest, AnotherWorldSizeIsNamed) {
  const std::string message(Read(With(kOpenMpi, {{"WORLD_SIZE", "3"}})).status().message());
  EXPECT_EQ(message,
            "WORLD_SIZE is 3, but mpirun has started 4 processes; unset WORLD_SIZE, or start as "
            "many");
}

TEST(ForeignLauncherTest, MpirunOnSeveralHostsMustBeToldTheFirst) {
  const Environ several =
      With(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_THAT(std::string(Read(several).status().message()),
              HasSubstr("MASTER_ADDR is not set; set it to rank 0's host"));
  const auto env = Read(With(several, {{"MASTER_ADDR", "a"}}));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->group_world_size, 2);
}

TEST(ForeignLauncherTest, FirstHostOfAList) {
  EXPECT_EQ(FirstHost("n1"), "n1");
  EXPECT_EQ(FirstHost("n1,n2"), "n1");
  EXPECT_EQ(FirstHost("gpu[03,07-09],login"), "gpu03");
  EXPECT_EQ(FirstHost("n[1-2]-ib"), "n1-ib");
  EXPECT_EQ(FirstHost("a,n[1-2]"), "a");
  EXPECT_EQ(FirstHost("n[1-2"), "");
  EXPECT_EQ(FirstHost(""), "");
}

TEST(ForeignLauncherTest, TasksOfEachNode) {
  EXPECT_EQ(TasksOfNode("2(x3),1", 0), 2);
  EXPECT_EQ(TasksOfNode("2(x3),1", 2), 2);
  EXPECT_EQ(TasksOfNode("2(x3),1", 3), 1);
  EXPECT_EQ(TasksOfNode("2(x3),1", 4), std::nullopt);
  EXPECT_EQ(TasksOfNode("", 0), std::nullopt);
}

}  // namespace
}  // namespace ddprun
