// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/local_server.h"

#include "rendezvous/local_session.h"
#include "rendezvous/local_store.h"
#include "rendezvous/run_registry.h"

namespace ddprun {
namespace {

class LocalServer final : public RendezvousServer {
 public:
  explicit LocalServer(const std::string& run_id)
      : registry_(run_id), local_store_(std::make_shared<LocalStore>(registry_)) {}
  ~LocalServer() override { local_store_->Close(); }

  int port() const override { return 0; }
  std::string target() const override { return ""; }
  std::unique_ptr<SessionClient> OpenSession(const Join& join,
                                             SessionClient::Handler handler) override {
    return OpenLocalSession(registry_, join, std::move(handler));
  }
  std::shared_ptr<StoreDoor> store_door() override { return local_store_; }
  std::uint64_t store_messages(const std::string& run_id, const std::string& node_id) override {
    return registry_.StoreMessages(run_id, NodeId{node_id});
  }
  void WaitUntilDrained(std::chrono::milliseconds timeout) override {
    registry_.WaitUntilDrained(timeout);
  }

 private:
  RunRegistry registry_;
  const std::shared_ptr<LocalStore> local_store_;
};

}  // namespace

std::unique_ptr<RendezvousServer> MakeLocalServer(const std::string& run_id) {
  return std::make_unique<LocalServer>(run_id);
}

}  // namespace ddprun
