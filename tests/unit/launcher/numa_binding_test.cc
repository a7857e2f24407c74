// SPDX-License-Identifier: Apache-2.0
// The rules by themselves. tests/e2e/test_numa_binding.py compares them with torch's own.
#include "launcher/placement/numa_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "launcher/base/int_ranges.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

// A machine of equal parts. Threads of a core are numbered as Linux does: first all cores, then
// their second threads.
struct Shape {
  int packages = 1;
  int nodes = 1;   // of each package
  int caches = 1;  // of each node
  int cores = 1;   // of each cache
  int threads = 1;
};

Topology Make(const Shape& shape) {
  const int cores = shape.packages * shape.nodes * shape.caches * shape.cores;
  Topology topology;
  for (int id = 0; id < cores * shape.threads; ++id) {
    const int core = id % cores;
    const int cache = core / shape.cores;
    const int node = cache / shape.caches;
    topology.push_back({.id = id,
                        .core = core,
                        .cache = cache * shape.cores,
                        .node = node,
                        .package = node / shape.nodes});
  }
  return topology;
}

Topology Only(const Topology& topology, const std::string& cpus) {
  const std::vector<int> allowed = *ParseRanges(cpus);
  Topology rest;
  for (const Cpu& cpu : topology) {
    if (std::find(allowed.begin(), allowed.end(), cpu.id) != allowed.end()) rest.push_back(cpu);
  }
  return rest;
}

// The CPUs of each worker, as text.
Texts Bound(NumaBinding mode, const Topology& topology, int workers,
            const std::vector<int>& seats = {}) {
  const auto bound = BindWorkers(mode, topology, workers, seats);
  EXPECT_TRUE(bound.ok()) << bound.status();
  Texts texts;
  for (const BoundWorker& worker : bound.value_or(std::vector<BoundWorker>{})) {
    texts.push_back(RangesText(worker.cpus));
  }
  return texts;
}

std::string WhyNot(NumaBinding mode, const Topology& topology, int workers,
                   const std::vector<int>& seats = {}) {
  const auto bound = BindWorkers(mode, topology, workers, seats);
  EXPECT_TRUE(absl::IsFailedPrecondition(bound.status())) << bound.status();
  return std::string(bound.status().message());
}

const Topology kServer = Make({.packages = 2, .nodes = 2, .caches = 2, .cores = 2, .threads = 2});

TEST(NumaBindingTest, NodeIsAllCpusOfTheGpusNode) {
  EXPECT_THAT(Bound(NumaBinding::kNode, kServer, 2, {3, 0}),
              ElementsAre("12-15,28-31", "0-3,16-19"));
}

TEST(NumaBindingTest, SocketIsAllNodesOfTheSocket) {
  EXPECT_THAT(Bound(NumaBinding::kSocket, kServer, 2, {3, 0}),
              ElementsAre("8-15,24-31", "0-7,16-23"));
}

TEST(NumaBindingTest, ExclusiveDividesCoresWithBothThreadsAmongTheNodesGpus) {
  EXPECT_THAT(Bound(NumaBinding::kExclusive, kServer, 3, {1, 1, 0}),
              ElementsAre("4-5,20-21", "6-7,22-23", "0-3,16-19"));
  // The first ones get what is left over.
  EXPECT_THAT(Bound(NumaBinding::kExclusive, kServer, 3, {1, 1, 1}),
              ElementsAre("4-5,20-21", "6,22", "7,23"));
}

TEST(NumaBindingTest, GpusThatNoWorkerHasKeepTheirShareAsInTorchrun) {
  EXPECT_THAT(Bound(NumaBinding::kExclusive, kServer, 1, {1, 1}), ElementsAre("4-5,20-21"));
}

TEST(NumaBindingTest, CoreComplexesAreGivenInTurn) {
  EXPECT_THAT(Bound(NumaBinding::kCoreComplex, kServer, 3, {0, 0, 0}),
              ElementsAre("0-1,16-17", "2-3,18-19", "0-1,16-17"));
}

TEST(NumaBindingTest, TheComplexWithMostCpusComesFirst) {
  EXPECT_THAT(Bound(NumaBinding::kCoreComplex, Only(kServer, "1-3,17-19"), 2, {0, 0}),
              ElementsAre("2-3,18-19", "1,17"));
}

TEST(NumaBindingTest, WithoutGpusEqualNodesGetEqualNumbers) {
  EXPECT_THAT(Bound(NumaBinding::kNode, kServer, 4),
              ElementsAre("0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"));
  EXPECT_THAT(Bound(NumaBinding::kNode, kServer, 2), ElementsAre("0-3,16-19", "8-11,24-27"));
  EXPECT_THAT(Bound(NumaBinding::kExclusive, Make({.packages = 2, .cores = 4}), 4),
              ElementsAre("0-1", "2-3", "4-5", "6-7"));
}

TEST(NumaBindingTest, WithoutGpusANodeOfWhichLittleIsLeftGetsFew) {
  const Topology uneven = Only(Make({.packages = 2, .cores = 8}), "0-7,8");
  EXPECT_THAT(Bound(NumaBinding::kExclusive, uneven, 9),
              ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8"));
}

// Whatever a container leaves: no CPU that may not be used, none twice, for as many workers as
// cores.
TEST(NumaBindingTest, ExclusiveNeverGivesACoreTwice) {
  for (const char* allowed : {"0-31", "0-3,28-31", "5,9,21,30", "0-15", "16-31", "7"}) {
    const Topology topology = Only(kServer, allowed);
    std::set<int> cores;
    for (const Cpu& cpu : topology) cores.insert(cpu.core);
    for (int workers = 1; workers <= static_cast<int>(cores.size()); ++workers) {
      const auto bound = BindWorkers(NumaBinding::kExclusive, topology, workers, {});
      ASSERT_TRUE(bound.ok()) << allowed << " " << workers << " " << bound.status();
      std::set<int> given;
      for (const BoundWorker& worker : *bound) {
        EXPECT_FALSE(worker.cpus.empty());
        for (const int cpu : worker.cpus) {
          EXPECT_TRUE(given.insert(cpu).second) << allowed << " " << workers << " " << cpu;
        }
      }
    }
  }
}

TEST(NumaBindingTest, MemoryComesFromTheNodesOfTheCpus) {
  EXPECT_THAT((*BindWorkers(NumaBinding::kNode, kServer, 1, {2}))[0].nodes, ElementsAre(2));
  EXPECT_THAT((*BindWorkers(NumaBinding::kSocket, kServer, 1, {2}))[0].nodes, ElementsAre(2, 3));
}

TEST(NumaBindingTest, ThreadsAreTheShareOfPhysicalCores) {
  const auto cores = [](NumaBinding mode, const std::vector<int>& seats) {
    std::vector<int> counts;
    const auto bound = BindWorkers(mode, kServer, static_cast<int>(seats.size()), seats);
    for (const BoundWorker& worker : bound.value_or(std::vector<BoundWorker>{})) {
      counts.push_back(worker.cores);
    }
    return counts;
  };
  EXPECT_THAT(cores(NumaBinding::kNode, {0, 0, 1}), ElementsAre(2, 2, 4));
  EXPECT_THAT(cores(NumaBinding::kSocket, {0, 1, 2}), ElementsAre(4, 4, 8));
  EXPECT_THAT(cores(NumaBinding::kExclusive, {0, 0, 0}), ElementsAre(2, 1, 1));
  EXPECT_THAT(cores(NumaBinding::kCoreComplex, {0, 0, 0}), ElementsAre(1, 2, 1));
  EXPECT_THAT(cores(NumaBinding::kNode, {0, 0, 0, 0, 0}), ElementsAre(1, 1, 1, 1, 1));
}

TEST(NumaBindingTest, WhatCannotBeHadIsSaid) {
  EXPECT_THAT(WhyNot(NumaBinding::kExclusive, kServer, 5, {1, 1, 1, 1, 1}),
              HasSubstr("NUMA node 1 has 4 that may be used here for 5"));
  EXPECT_THAT(WhyNot(NumaBinding::kNode, Only(kServer, "0-3"), 1, {2}),
              HasSubstr("none of its CPUs may be used here (only 0-3)"));
  Topology without_caches = kServer;
  for (Cpu& cpu : without_caches) cpu.cache = -1;
  EXPECT_THAT(WhyNot(NumaBinding::kCoreComplex, without_caches, 1, {0}),
              HasSubstr("which CPUs share a cache"));
}

}  // namespace
}  // namespace ddprun
