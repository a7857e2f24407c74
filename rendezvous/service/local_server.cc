// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/local_server.h"

#include "rendezvous/service/registry_server.h"

namespace ddprun {
namespace {

class LocalServer final : public RegistryServer {
 public:
  using RegistryServer::RegistryServer;

  int port() const override { return 0; }
  std::string target() const override { return ""; }
};

}  // namespace

std::unique_ptr<RendezvousServer> MakeLocalServer(const std::string& run_id, RunWatcher* watcher) {
  return std::make_unique<LocalServer>(run_id, nullptr, watcher);
}

}  // namespace ddprun
