// SPDX-License-Identifier: Apache-2.0
// The store of an agent, at a unix socket, in the process of its service.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <memory>
#include <string>

#include "rendezvous/process/resource_limit.h"
#include "rendezvous/proxy/store_proxy.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {

// Resident memory of this process.
inline std::size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

class StoreAgentTest : public ::testing::Test {
 protected:
  StoreAgentTest() {
    RaiseFileLimit();
    EXPECT_TRUE(node_.Next<Start>());
    auto proxy = StoreProxy::Start({.socket_path = socket_,
                                    .channel = MakeServiceChannel(server_->target(), std::nullopt),
                                    .run_id = "run",
                                    .node_id = NodeId{"id-a"}});
    EXPECT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
    proxy_->SetRound(RoundId{1});
  }

  const std::unique_ptr<RendezvousServer> server_ = StartServer();
  TestNode node_{server_->target(), MakeJoin("a", 1)};
  const TempDir folder_;
  const std::string socket_ = folder_ / "s";
  std::unique_ptr<StoreProxy> proxy_;
};

}  // namespace ddprun
