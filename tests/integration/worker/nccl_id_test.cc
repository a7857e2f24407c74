// SPDX-License-Identifier: Apache-2.0
// The NCCL unique ID on its way from rank 0 to the others: a real one, through the real service,
// without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/worker/ranks.h"
#include "tests/integration/worker/service.h"
#include "worker/distributed/accelerator.h"
#include "worker/distributed/world_store.h"

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
  EXPECT_THAT(service.ConnectDirectly(std::chrono::seconds(5))->listKeys(),
              testing::ElementsAre("default_pg/0//cuda//0"));
}

TEST(NcclId, TwoIdsDiffer) {
  EXPECT_NE(LoadAccelerator().NcclUniqueId(), LoadAccelerator().NcclUniqueId());
}

TEST(NcclId, TheModuleTellsItsVersions) {
  EXPECT_THAT(LoadAccelerator().Versions(),
              testing::MatchesRegex("CUDA [0-9]+\\.[0-9]+, .*, NCCL [0-9.]+"));
  EXPECT_EQ(LoadAccelerator().DeviceCount(), DriverDeviceCount());
}

}  // namespace
}  // namespace ddprun
