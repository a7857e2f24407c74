// SPDX-License-Identifier: Apache-2.0
// The NCCL unique ID on its way from rank 0 to the others: a real one, through the real service,
// without a GPU.
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/integration/worker/nccl_roots.h"
#include "tests/integration/worker/ranks.h"
#include "tests/integration/worker/service.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/library/distributed/world_store.h"

namespace ddprun {
namespace {

constexpr std::size_t kNcclUniqueIdBytes = 128;

TEST(NcclId, ReachesEveryRankByteForByteUnderProcessGroupNcclsKey) {
  Service service;
  const std::vector<uint8_t> id = LoadAccelerator().NcclUniqueId();
  ASSERT_EQ(id.size(), kNcclUniqueIdBytes);
  std::vector<std::vector<uint8_t>> got(4);
  const auto errors = RunThreads(4, [&](int rank) {
    const auto store = service.ConnectThroughProxy(std::chrono::seconds(20));
    const auto group_store = DefaultGroupStore(store, "cuda");
    if (rank == 0) group_store->set("0", id);
    got[static_cast<std::size_t>(rank)] = group_store->get("0");
    EXPECT_EQ(store->get(kNcclIdKey), id);
  });
  EXPECT_THAT(errors, testing::Each(testing::IsEmpty()));
  EXPECT_THAT(got, testing::Each(id));
  EXPECT_THAT(service.ConnectThroughOtherProxy(std::chrono::seconds(5))->listKeys(),
              testing::ElementsAre("default_pg/0//cuda//0"));
}

TEST(NcclId, ManyRootsIdsReachEveryRankOfBothNodes) {
  constexpr int kRanks = 7;
  constexpr int kRoots = 3;  // as with TORCH_NCCL_RANKS_PER_ROOT=3
  Service service;
  std::vector<std::vector<NcclId>> got(kRanks);
  const auto errors = RunThreads(kRanks, [&](int rank) {
    const auto timeout = std::chrono::seconds(20);
    const auto store =
        rank < 4 ? service.ConnectThroughProxy(timeout) : service.ConnectThroughOtherProxy(timeout);
    got[static_cast<std::size_t>(rank)] =
        ExchangeIds(*DefaultGroupStore(store, "cuda"), rank, kRanks, kRoots);
  });
  EXPECT_THAT(errors, testing::Each(testing::IsEmpty()));
  ASSERT_EQ(got[0].size(), kRoots);
  EXPECT_THAT(got[0], testing::Each(testing::SizeIs(kNcclUniqueIdBytes)));
  EXPECT_EQ(std::set<NcclId>(got[0].begin(), got[0].end()).size(), kRoots);
  EXPECT_THAT(got, testing::Each(got[0]));
  EXPECT_THAT(service.ConnectThroughOtherProxy(std::chrono::seconds(5))->listKeys(),
              testing::UnorderedElementsAre("default_pg/0//cuda//UniqueNCCLID:0",
                                            "default_pg/0//cuda//UniqueNCCLID:1",
                                            "default_pg/0//cuda//UniqueNCCLID:2"));
}

TEST(NcclId, RootsAreSpreadEvenly) {
  std::vector<int> roots;
  for (int rank = 0; rank < 7; ++rank) roots.push_back(RootOf(rank, 7, 3));
  EXPECT_THAT(roots, testing::ElementsAre(0, -1, -1, 1, -1, 2, -1));
}

// ProcessGroupNCCL's keys do not name the round (pytorch#178473 reads the IDs of a communicator
// that is gone): the store must have forgotten those of the round before.
TEST(NcclId, ARestartNeverSeesAnOldRoundsIds) {
  const auto server = StartServer();
  TestNode node(server->target(), LeasedJoin("a"));
  TestNode other(server->target(), LeasedJoin("b"));
  const TempDir folder;
  auto proxy = StoreProxy::Start({.socket_path = folder / "agent.sock",
                                  .channel = node.channel(),
                                  .run_id = "run",
                                  .node_id = LeasedJoin("a").node_id});
  ASSERT_TRUE(proxy.ok());
  const auto connect = [&folder](RoundId round) {
    return DefaultGroupStore(
        AgentStore::Connect({.target = "unix:" + (folder / "agent.sock"), .round = round},
                            std::chrono::seconds(20)),
        "cuda");
  };
  constexpr int kRanks = 5;
  std::vector<std::vector<std::vector<NcclId>>> got;  // by round and rank
  for (const RoundId round : {RoundId{1}, RoundId{2}}) {
    AwaitStart(node, round);
    AwaitStart(other, round);
    (*proxy)->SetRound(round);
    EXPECT_FALSE(connect(round)->check({"UniqueNCCLID:0"}));
    std::vector<std::vector<NcclId>>& of_round = got.emplace_back(kRanks);
    const auto errors = RunThreads(kRanks, [&](int rank) {
      const auto store = connect(round);
      of_round[static_cast<std::size_t>(rank)] = ExchangeIds(*store, rank, kRanks, /*roots=*/2);
    });
    EXPECT_THAT(errors, testing::Each(testing::IsEmpty()));
    EXPECT_THAT(of_round, testing::Each(of_round[0]));
    if (round == RoundId{2}) break;
    Failure failure;
    failure.rank = 0;
    failure.exit_code = 1;
    node.Send(WorkerFailed{round, failure});
    ASSERT_TRUE(node.Next<Stop>());
    ASSERT_TRUE(other.Next<Stop>());
    node.Send(NodeStopped{round, 4000, {}});
    other.Send(NodeStopped{round, 4000, {}});
  }
  for (const NcclId& id : got[1][0]) EXPECT_THAT(got[0][0], testing::Not(testing::Contains(id)));
}

TEST(NcclId, TwoIdsDiffer) {
  EXPECT_NE(LoadAccelerator().NcclUniqueId(), LoadAccelerator().NcclUniqueId());
}

TEST(NcclId, TheModuleTellsItsVersions) {
  EXPECT_THAT(LoadAccelerator().Versions(),
              testing::MatchesRegex("CUDA [0-9]+\\.[0-9]+, .*, NCCL [0-9.]+"));
  EXPECT_EQ(LoadAccelerator().DeviceCount(), DriverDeviceCount());
}

// In a process of its own: the answer stays.
TEST(NcclId, TheModuleIsRefusedWhereAtenWasAskedAboutCudaBefore) {
  RunProcesses(
      1, [](int) { return EnvByHand(0, 1, 1); },
      [](const WorkerEnv&) {
        EXPECT_FALSE(at::hasCUDA());
        EXPECT_THAT([] { LoadAccelerator(); },
                    testing::ThrowsMessage<std::runtime_error>(testing::StartsWith(
                        "LibTorch was asked about CUDA before its CUDA library was loaded")));
      });
}

}  // namespace
}  // namespace ddprun
