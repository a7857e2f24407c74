// SPDX-License-Identifier: Apache-2.0
// What a rendezvous service is to its own process, whether or not others can reach it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/service/local_session.h"
#include "rendezvous/service/local_store.h"
#include "rendezvous/service/run_registry.h"
#include "rendezvous/service/server.h"

namespace ddprun {

class RegistryServer : public RendezvousServer {
 public:
  // As RunRegistry takes them.
  RegistryServer(std::optional<std::string> default_run_id, std::unique_ptr<ServiceJournal> journal,
                 RunWatcher* watcher)
      : registry_(std::move(default_run_id), std::move(journal), watcher),
        local_store_(std::make_shared<LocalStore>(registry_)) {}

  // Once nobody can reach the service any more: its server's destructor has come first.
  ~RegistryServer() override { local_store_->Close(); }

  std::unique_ptr<SessionClient> OpenSession(const Join& join,
                                             SessionClient::Handler handler) override {
    return OpenLocalSession(registry_, join, std::move(handler));
  }
  std::shared_ptr<StoreConnector> store_connector() override { return local_store_; }
  std::uint64_t store_messages(const std::string& run_id, const std::string& node_id) override {
    return registry_.StoreMessages(run_id, NodeId{node_id});
  }
  std::vector<RunStatus> Status() override {
    auto status = registry_.Status("", std::chrono::steady_clock::now());
    return status.ok() ? *std::move(status) : std::vector<RunStatus>();
  }
  void WaitUntilDrained(std::chrono::milliseconds timeout) override {
    registry_.WaitUntilDrained(timeout);
  }

 protected:
  RunRegistry& registry() { return registry_; }

 private:
  RunRegistry registry_;
  const std::shared_ptr<LocalStore> local_store_;
};

}  // namespace ddprun
