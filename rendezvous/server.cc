// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "rendezvous/addresses.h"
#include "rendezvous/grpc_channel.h"
#include "rendezvous/local_store.h"
#include "rendezvous/run_registry.h"
#include "rendezvous/session_service.h"
#include "rendezvous/store_service.h"

namespace ddprun {
namespace {

constexpr absl::string_view kUnixPrefix = "unix:";

class RendezvousServerImpl final : public RendezvousServer {
 public:
  explicit RendezvousServerImpl(std::optional<std::string> default_run_id)
      : registry_(std::move(default_run_id)),
        session_service_(registry_),
        store_service_(registry_),
        local_store_(std::make_shared<LocalStore>(registry_)) {}

  ~RendezvousServerImpl() override {
    // Nobody is waited for: those that are to hear a verdict were waited for in WaitUntilDrained().
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    local_store_->Close();
  }

  // `listen` is what gRPC calls an address.
  bool Listen(const std::string& listen) {
    grpc::ServerBuilder builder;
    SetServerArguments(builder);
    SetServerKeepalive(builder);
    builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&session_service_);
    builder.RegisterService(&store_service_);
    server_ = builder.BuildAndStart();
    return server_ != nullptr;
  }

  void set_target(std::string target) { target_ = std::move(target); }
  int port() const override { return port_; }
  std::string target() const override { return target_; }
  std::shared_ptr<StoreDoor> store_door() override { return local_store_; }
  std::uint64_t store_messages(const std::string& run_id, const std::string& node_id) override {
    const std::shared_ptr<Run> run = registry_.Find(run_id);
    return run == nullptr ? 0 : run->store_messages(NodeId{node_id});
  }
  void WaitUntilDrained(std::chrono::milliseconds timeout) override {
    registry_.WaitUntilDrained(timeout);
  }

 private:
  int port_ = 0;
  std::string target_;
  RunRegistry registry_;
  SessionService session_service_;
  StoreService store_service_;
  const std::shared_ptr<LocalStore> local_store_;
  std::unique_ptr<grpc::Server> server_;  // last: its streams use all of the above
};

absl::StatusOr<std::unique_ptr<RendezvousServer>> StartOnSocket(RendezvousServer::Options options) {
  const std::string path(absl::StripPrefix(options.address, kUnixPrefix));
  if (absl::Status status = CheckSocketPath(path); !status.ok()) return status;
  auto server = std::make_unique<RendezvousServerImpl>(std::move(options.default_run_id));
  if (!server->Listen(options.address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on the unix socket ", path,
                     "; check that its folder exists and can be written"));
  }
  server->set_target(options.address);
  return server;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousServer>> RendezvousServer::Start(Options options) {
  PrepareGrpc();
  if (absl::StartsWith(options.address, kUnixPrefix)) return StartOnSocket(std::move(options));
  auto address = CheckBindable(options.address, options.port);
  if (!address.ok()) return address.status();
  auto server = std::make_unique<RendezvousServerImpl>(std::move(options.default_run_id));
  if (!server->Listen(HostPort(*address, options.port))) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on ", HostPort(options.address, options.port),
                     ": another program took the port just now; try again"));
  }
  std::string reach = *address;
  if (reach == "0.0.0.0") reach = "127.0.0.1";
  if (reach == "::") reach = "::1";
  server->set_target(HostPort(reach, server->port()));
  return server;
}

}  // namespace ddprun
