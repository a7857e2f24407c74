// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "worker/library/distributed/network_address.h"
#include "worker/library/distributed/world_store.h"

namespace ddprun {
namespace {

TEST(WorldStore, TheDefaultGroupsKeysLieWherePythonPutsThem) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  // ProcessGroupNCCL's name for its first communicator's unique ID.
  DefaultGroupStore(store, "cuda")->set("0", "id");
  EXPECT_THAT(store->listKeys(), testing::ElementsAre(kNcclIdKey));
}

TEST(WorldStore, AWorldOfOneKeepsItsKeysInMemory) {
  const auto store = OpenWorldStore(WorkerEnv{}, std::chrono::seconds(3));
  EXPECT_EQ(store->getTimeout(), std::chrono::seconds(3));
  store->set("key", "1");
  EXPECT_EQ(store->get_to_str("key"), "1");
}

// torchrun's agent serves one TCPStore for all attempts.
TEST(WorldStore, ARestartUnderTorchrunFindsNoKeysOfTheAttemptBefore) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  const auto agents = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", /*overwrite=*/1);
  WorkerEnv env;
  env.world_size = 2;
  env.master_addr = "127.0.0.1";
  env.master_port = agents->getPort();
  const std::chrono::seconds timeout(20);
  OpenWorldStore(env, timeout)->set("key", "first");
  env.restart_count = 1;
  const auto restarted = OpenWorldStore(env, timeout);
  EXPECT_FALSE(restarted->check({"key"}));
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_EQ(agents->get_to_str("ddprun/attempt_0/key"), "first");
}

TEST(NetworkAddress, TheRouteDecides) {
  WorkerEnv env;
  env.master_addr = "127.0.0.1";
  env.master_port = 29500;
  EXPECT_EQ(AddressForPeers(env), "127.0.0.1");
}

TEST(NetworkAddress, LoopbackIsNotForOtherNodes) {
  WorkerEnv env;
  env.master_addr = "127.0.1.1";  // what a node's own name often stands for
  env.master_port = 29500;
  env.group_world_size = 2;
  try {
    EXPECT_THAT(AddressForPeers(env), testing::Not(testing::StartsWith("127.")));
  } catch (const std::runtime_error& error) {  // a host without any other route
    EXPECT_THAT(error.what(), testing::HasSubstr("GLOO_SOCKET_IFNAME"));
  }
}

TEST(NetworkAddress, AnAddressHasItsInterface) {
  EXPECT_EQ(InterfaceOf("127.0.0.1"), "lo");
  EXPECT_EQ(InterfaceOf("192.0.2.77"), "");
}

}  // namespace
}  // namespace ddprun
