// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using List = std::optional<std::string>;

Options Workers(int count) {
  Options options;
  options.proc_per_node_number = count;
  return options;
}

Options OnePerGpu() {
  Options options;
  options.proc_per_node = ProcPerNode::kGpu;
  return options;
}

// Two nodes of four CPUs, two GPUs at each.
Machine Server() {
  Machine machine;
  machine.cpus = machine.cores = 8;
  machine.gpus = {{"GPU-a", 0}, {"GPU-b", 0}, {"GPU-c", 1}, {"GPU-d", 1}};
  for (int id = 0; id < 8; ++id) {
    machine.topology.push_back(
        {.id = id, .core = id, .cache = id / 4 * 4, .node = id / 4, .package = id / 4});
  }
  return machine;
}

std::vector<Place> Places(const Options& options, const Machine& machine) {
  auto places = PlaceWorkers(options, machine);
  EXPECT_TRUE(places.ok()) << places.status();
  return places.value_or(std::vector<Place>{});
}

std::vector<List> GpuLists(const Options& options, const Machine& machine) {
  std::vector<List> lists;
  for (const Place& place : Places(options, machine)) lists.push_back(place.visible_devices);
  return lists;
}

std::vector<CpuSet> CpuSets(const Options& options, const Machine& machine) {
  std::vector<CpuSet> sets;
  for (const Place& place : Places(options, machine)) sets.push_back(place.cpus);
  return sets;
}

std::string WhyNot(const Options& options, const Machine& machine) {
  const auto places = PlaceWorkers(options, machine);
  EXPECT_FALSE(places.ok());
  return std::string(places.status().message());
}

TEST(PlacementTest, NothingIsTakenOrGivenUnlessAskedFor) {
  EXPECT_THAT(Places(Workers(2), Server()), ElementsAre(Place{.threads = 4}, Place{.threads = 4}));
}

TEST(PlacementTest, ThreadsAreTheShareOfPhysicalCoresAndOneWorkerAsksTheSystem) {
  Machine machine = Server();
  machine.cores = 4;
  EXPECT_EQ(Places(Workers(2), machine)[0].threads, 2);
  EXPECT_EQ(Places(Workers(16), machine)[0].threads, 1);
  EXPECT_EQ(Places(Workers(1), machine)[0].threads, 0);
}

TEST(PlacementTest, AContainersQuotaLimitsThreadsAndNothingElse) {
  Machine machine = Server();
  machine.cpu_quota = 5.5;
  EXPECT_THAT(Places(Workers(2), machine), ElementsAre(Place{.threads = 2}, Place{.threads = 2}));
  EXPECT_EQ(Places(Workers(8), machine)[7].threads, 1);
  EXPECT_EQ(Places(Workers(1), machine)[0].threads, 5);
  machine.cpu_quota = 0.5;
  EXPECT_EQ(Places(Workers(1), machine)[0].threads, 1);
  machine.cpu_quota = 100;
  EXPECT_EQ(Places(Workers(2), machine)[0].threads, 4);
  EXPECT_EQ(Places(Workers(1), machine)[0].threads, 0);
  Options bound = Workers(2);
  bound.affinity.numa_binding = NumaBinding::kExclusive;
  machine.cpu_quota = 2;
  EXPECT_EQ(Places(bound, machine)[0].threads, 1);
  EXPECT_EQ(Places(bound, machine)[0].cpus, (CpuSet{0, 1}));
}

TEST(PlacementTest, ChosenGpusAreSeenByAllAndCounted) {
  Options options = OnePerGpu();
  options.affinity.gpus = {"0", "2"};
  EXPECT_THAT(GpuLists(options, Server()), ElementsAre("0,2", "0,2"));
  Machine limited = Server();
  limited.visible_devices = "3,1,0";
  EXPECT_THAT(GpuLists(options, limited), ElementsAre("3,0", "3,0"));
}

TEST(PlacementTest, AllGpusAreCountedWhereNoneIsChosen) {
  EXPECT_THAT(GpuLists(OnePerGpu(), Server()), ElementsAre(List{}, List{}, List{}, List{}));
  Machine limited = Server();
  limited.visible_devices = "2";
  EXPECT_EQ(Places(OnePerGpu(), limited).size(), 1u);
}

TEST(PlacementTest, SeveralGpusOfItsOwnForEachWorker) {
  Options options = OnePerGpu();
  options.affinity.gpus_per_worker = 2;
  EXPECT_THAT(GpuLists(options, Server()), ElementsAre("0,1", "2,3"));
  options.affinity.gpus = {"3", "1", "0"};
  EXPECT_THAT(GpuLists(options, Server()), ElementsAre("3,1"));
  Options three = Workers(3);
  three.affinity.gpus_per_worker = 2;
  EXPECT_THAT(WhyNot(three, Server()), HasSubstr("each of 3 workers is to have 2 GPUs"));
}

TEST(PlacementTest, VirtualLocalRanksGoThroughTheParentsList) {
  Options options = Workers(2);
  options.affinity.virtual_local_rank = true;
  Machine machine;
  EXPECT_THAT(GpuLists(options, machine), ElementsAre("0", "1"));
  machine.visible_devices = "6, GPU-x";
  EXPECT_THAT(GpuLists(options, machine), ElementsAre("6", "GPU-x"));
  machine.visible_devices = "6";
  EXPECT_THAT(WhyNot(options, machine), HasSubstr("CUDA_VISIBLE_DEVICES=6 has 1"));
  options.affinity.gpus = {"2", "1"};
  const std::vector<Place> places = Places(options, Server());
  EXPECT_EQ(places[0].visible_devices, "2");
  EXPECT_EQ(places[1].visible_devices, "1");
  EXPECT_TRUE(places[1].local_rank_is_zero);
}

TEST(PlacementTest, AWorkerIsBoundNearItsGpu) {
  Options options = Workers(2);
  options.affinity.numa_binding = NumaBinding::kNode;
  EXPECT_THAT(CpuSets(options, Server()), ElementsAre(CpuSet{0, 1, 2, 3}, CpuSet{0, 1, 2, 3}));
  options.affinity.gpus = {"3", "0"};
  EXPECT_THAT(CpuSets(options, Server()), ElementsAre(CpuSet{4, 5, 6, 7}, CpuSet{0, 1, 2, 3}));
  options.affinity.gpus = {};
  options.affinity.gpus_per_worker = 2;
  EXPECT_THAT(CpuSets(options, Server()), ElementsAre(CpuSet{0, 1, 2, 3}, CpuSet{4, 5, 6, 7}));
  const std::vector<Place> places = Places(options, Server());
  EXPECT_THAT(places[1].memory_nodes, ElementsAre(1));
  EXPECT_EQ(places[1].threads, 4);
}

TEST(PlacementTest, MoreWorkersThanGpusTakeTurns) {
  Options options = Workers(4);
  options.affinity.numa_binding = NumaBinding::kExclusive;
  options.affinity.gpus = {"0", "2"};
  EXPECT_THAT(CpuSets(options, Server()),
              ElementsAre(CpuSet{0, 1}, CpuSet{4, 5}, CpuSet{2, 3}, CpuSet{6, 7}));
}

TEST(PlacementTest, WithoutGpusWorkersAreSpread) {
  Options options = Workers(2);
  options.affinity.numa_binding = NumaBinding::kNode;
  Machine machine = Server();
  machine.gpus.clear();
  EXPECT_THAT(CpuSets(options, machine), ElementsAre(CpuSet{0, 1, 2, 3}, CpuSet{4, 5, 6, 7}));
}

TEST(PlacementTest, WhatTheMachineDoesNotHaveIsSaid) {
  Options options = Workers(1);
  options.affinity.gpus = {"4"};
  EXPECT_THAT(WhyNot(options, Server()), HasSubstr("--gpus names 4"));
  Machine bare = Server();
  bare.gpus.clear();
  EXPECT_THAT(WhyNot(OnePerGpu(), bare), HasSubstr("no NVIDIA or AMD GPU"));
}

// Two programs, of 3 and 1 workers.
Options TwoPrograms(bool by_role) {
  Options options = Workers(1);
  options.workers = 3;
  options.more_programs.emplace_back();
  options.ranks_by_role = by_role;
  return options;
}

TEST(PlacementTest, WorkersOfSeveralProgramsFollowEachOther) {
  std::vector<int> programs;
  for (const Place& place : Places(TwoPrograms(false), Server())) programs.push_back(place.program);
  EXPECT_THAT(programs, ElementsAre(0, 0, 0, 1));
}

TEST(PlacementTest, ProgramsWhoseRanksAreCountedApartSeeGpusOfTheirOwn) {
  EXPECT_THAT(GpuLists(TwoPrograms(true), Server()), ElementsAre("0,1,2", "0,1,2", "0,1,2", "3"));
  EXPECT_THAT(GpuLists(TwoPrograms(false), Server()),
              ElementsAre(std::nullopt, std::nullopt, std::nullopt, std::nullopt));
  Machine fewer = Server();
  fewer.gpus.resize(3);
  EXPECT_THAT(GpuLists(TwoPrograms(true), fewer),
              ElementsAre(std::nullopt, std::nullopt, std::nullopt, std::nullopt));
  Options options = TwoPrograms(true);
  options.affinity.gpus_per_worker = 1;
  EXPECT_THAT(GpuLists(options, Server()), ElementsAre("0", "1", "2", "3"));
}

}  // namespace
}  // namespace ddprun
