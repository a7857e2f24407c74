// SPDX-License-Identifier: Apache-2.0
// A real rendezvous service in the test's process, two nodes that have joined it, and their store
// proxies: one over a connection, one in the service's process.
#pragma once

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

#include "rendezvous/proxy/store_proxy.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/integration/worker/ranks.h"
#include "worker/library/distributed/agent_store.h"

namespace ddprun {

// One run of two nodes in its first round, with the store as their workers reach it.
class Service {
 public:
  Service()
      : server_(StartServer()),
        join_(MakeJoin("a", /*nodes=*/2)),
        node_(server_->target(), join_),
        other_join_(MakeJoin("b", /*nodes=*/2)),
        other_node_(server_->target(), other_join_) {
    const std::optional<Start> start = node_.Next<Start>();
    if (!start) throw std::runtime_error("the round did not start");
    round_ = start->round;
    auto proxy = StoreProxy::Start({.socket_path = socket_path(),
                                    .channel = node_.channel(),
                                    .run_id = join_.run_id,
                                    .node_id = join_.node_id});
    if (!proxy.ok()) throw std::runtime_error(std::string(proxy.status().message()));
    proxy_ = *std::move(proxy);
    proxy_->SetRound(round_);
    // The other node's, with another way to the same keys.
    auto other = StoreProxy::Start({.socket_path = folder_ / "other.sock",
                                    .connector = server_->store_connector(),
                                    .run_id = join_.run_id,
                                    .node_id = other_join_.node_id});
    if (!other.ok()) throw std::runtime_error(std::string(other.status().message()));
    other_proxy_ = *std::move(other);
    other_proxy_->SetRound(round_);
  }

  std::string socket_path() const { return folder_ / "agent.sock"; }
  RoundId round() const { return round_; }
  StoreProxy& proxy() { return *proxy_; }

  c10::intrusive_ptr<AgentStore> ConnectThroughProxy(std::chrono::milliseconds timeout) const {
    return Connect(socket_path(), timeout);
  }

  c10::intrusive_ptr<AgentStore> ConnectThroughOtherProxy(std::chrono::milliseconds timeout) const {
    return Connect(folder_ / "other.sock", timeout);
  }

  // What the agent would tell a worker. Nobody may need the port.
  WorkerEnv EnvOf(int rank, int size) const {
    WorkerEnv env = EnvByHand(rank, size, /*port=*/1);
    env.agent_socket = socket_path();
    env.run_id = join_.run_id;
    env.round = ToNumber(round_);
    return env;
  }

 private:
  c10::intrusive_ptr<AgentStore> Connect(const std::string& path,
                                         std::chrono::milliseconds timeout) const {
    return AgentStore::Connect({.target = "unix:" + path, .round = round_}, timeout);
  }

  const TempDir folder_;
  const std::unique_ptr<RendezvousServer> server_;
  const Join join_;
  TestNode node_;
  const Join other_join_;
  TestNode other_node_;
  RoundId round_ = kNoRound;
  std::unique_ptr<StoreProxy> proxy_;
  std::unique_ptr<StoreProxy> other_proxy_;
};

}  // namespace ddprun
