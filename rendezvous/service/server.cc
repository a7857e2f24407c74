// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "proto/text.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/journal/service_journal.h"
#include "rendezvous/listener/listener.h"
#include "rendezvous/listener/peer_guard.h"
#include "rendezvous/service/control_service.h"
#include "rendezvous/service/local_session.h"
#include "rendezvous/service/local_store.h"
#include "rendezvous/service/run_registry.h"
#include "rendezvous/service/session_service.h"
#include "rendezvous/service/store_service.h"
#include "rendezvous/streams/completion_threads.h"
#include "rendezvous/wire/grpc_channel.h"

namespace ddprun {
namespace {

constexpr absl::string_view kUnixPrefix = "unix:";

// ---- gRPC's own protocols for tools that know nothing of ddprun: health (grpc.health.v1, for
// probes and load balancers) and reflection (for grpcurl). Both need a certificate of the run like
// any other call.

// For this server only: gRPC's own function enables reflection for every server of the process.
class WithReflection final : public grpc::ServerBuilderOption {
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->push_back(std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>());
  }
};

// Before BuildAndStart().
void AddHealthAndReflection(grpc::ServerBuilder& builder) {
  // Applies to all servers of the process and may not be set while another is built: once.
  static const bool enabled = [] {
    grpc::EnableDefaultHealthCheckService(true);
    return true;
  }();
  (void)enabled;
  builder.SetOption(std::make_unique<WithReflection>());
  // Reflection is gRPC 1.51's only service here that holds a thread for each of its streams.
  grpc::ResourceQuota quota("reflection");
  quota.SetMaxThreads(kReflectionThreadsMax);
  builder.SetResourceQuota(quota);
}

// After it: reports the server and each of its services as serving.
void SayServing(grpc::Server& server) {
  grpc::HealthCheckServiceInterface* const health = server.GetHealthCheckService();
  if (health == nullptr) return;
  for (const char* const name :
       {v1::Rendezvous::service_full_name(), v1::Store::service_full_name()}) {
    health->SetServingStatus(name, true);
  }
}

// ---- The servers

// The service within its own process, whether or not others can reach it.
class LocalServer : public RendezvousServer {
 public:
  // As RunRegistry takes them.
  LocalServer(std::optional<std::string> default_run_id, std::unique_ptr<ServiceJournal> journal,
              RunWatcher* watcher)
      : registry_(std::move(default_run_id), std::move(journal), watcher),
        local_store_(std::make_shared<LocalStore>(registry_)) {}

  // The service can no longer be reached: the destructor of a GrpcServer has run before.
  ~LocalServer() override { local_store_->Close(); }

  int port() const override { return 0; }
  std::string target() const override { return ""; }
  std::unique_ptr<SessionClient> OpenSession(const Join& join,
                                             SessionClient::Handler handler) override {
    return OpenLocalSession(registry_, join, std::move(handler));
  }
  std::shared_ptr<StoreConnector> store_connector() override { return local_store_; }
  std::uint64_t store_messages(const std::string& run_id, const std::string& node_id) override {
    const std::shared_ptr<Run> run = registry_.Find(run_id);
    return run == nullptr ? 0 : run->store_messages(NodeId{node_id});
  }
  std::vector<RunStatus> Status() override {
    auto status = registry_.Status("", std::chrono::steady_clock::now());
    return status.ok() ? *std::move(status) : std::vector<RunStatus>();
  }
  void CheckJournal() override { registry_.CheckJournal(); }
  void WaitUntilDrained(std::chrono::milliseconds timeout) override {
    registry_.WaitUntilDrained(timeout);
  }

 protected:
  RunRegistry& registry() { return registry_; }

 private:
  RunRegistry registry_;
  const std::shared_ptr<LocalStore> local_store_;
};

// The same, reachable over gRPC.
class GrpcServer final : public LocalServer {
 public:
  GrpcServer(const RendezvousServer::Options& options, std::unique_ptr<ServiceJournal> journal)
      : LocalServer(options.default_run_id, std::move(journal), options.watcher),
        guard_(options.credentials.has_value() && options.credentials->derived
                   ? PeerGuard::NodeIds::kInCertificate
                   : PeerGuard::NodeIds::kNotProven,
               options.default_run_id),
        session_service_(registry(), guard_),
        store_service_(registry(), guard_),
        control_service_(registry(), guard_) {}

  ~GrpcServer() override {
    guard_.SetListener(nullptr);
    listener_.reset();
    if (server_ != nullptr) control_service_.EndWatches(kWatchEndTimeout);
    // Does not wait: WaitUntilDrained() has waited for the nodes that receive a verdict.
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    if (threads_ != nullptr) threads_->Stop();
  }

  // False if gRPC does not start, which happens with credentials that OpenSSL cannot use.
  bool Serve(ListeningSocket socket, const std::optional<TlsCredentials>& credentials,
             Listener::Peers peers, grpc::Service* another_service) {
    port_ = socket.port;
    grpc::ServerBuilder builder;
    SetServerArguments(builder);
    if (peers != Listener::Peers::kSameUser) {
      SetServerKeepalive(builder);
      AddHealthAndReflection(builder);
    }
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watchers;
    watchers.push_back(guard_.MakeCallWatcher());
    builder.experimental().SetInterceptorCreators(std::move(watchers));
    builder.RegisterService(&session_service_);
    builder.RegisterService(&store_service_);
    builder.RegisterService(&control_service_);
    if (another_service != nullptr) builder.RegisterService(another_service);
    acceptor_ = AddAcceptor(builder, credentials);
    threads_ = std::make_unique<CompletionThreads>(builder);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return false;
    session_service_.Serve(*threads_);
    store_service_.Serve(*threads_);
    threads_->Start();
    SayServing(*server_);
    Listener::Options listening{.peers = peers};
    if (credentials.has_value()) {
      listening.hello_key = credentials->hello_key;
      listening.times = credentials->times;
    }
    listening.on_rejected = [this](const std::string& address, const absl::Status& why) {
      registry().Refused(address, why);
    };
    listener_ =
        std::make_unique<Listener>(std::move(socket), std::move(listening), HandOverTo(*acceptor_));
    guard_.SetListener(listener_.get());
    return true;
  }

  void set_target(std::string target) { target_ = std::move(target); }
  int port() const override { return port_; }
  std::string target() const override { return target_; }

 private:
  int port_ = 0;
  std::string target_;
  PeerGuard guard_;
  SessionService session_service_;
  StoreService store_service_;
  ControlService control_service_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<CompletionThreads> threads_;
  std::unique_ptr<grpc::Server> server_;  // its streams use all of the above
  std::unique_ptr<Listener> listener_;    // last: it uses the acceptor
};

absl::StatusOr<std::unique_ptr<ServiceJournal>> OpenJournal(
    const std::optional<JournalOptions>& options) {
  if (!options) return nullptr;
  return ServiceJournal::Start(options->open, options->on_failure);
}

}  // namespace

std::unique_ptr<RendezvousServer> RendezvousServer::StartLocal(const std::string& run_id,
                                                               RunWatcher* watcher) {
  // As PrepareGrpc() does, which a run of one node does without.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return std::make_unique<LocalServer>(run_id, nullptr, watcher);
}

absl::StatusOr<std::unique_ptr<RendezvousServer>> RendezvousServer::Start(Options options) {
  PrepareGrpc();
  // Before the port is opened: nodes must find the runs of the journal.
  auto journal = OpenJournal(options.journal);
  if (!journal.ok()) return journal.status();
  const bool on_path = absl::StartsWith(options.address, kUnixPrefix);
  absl::StatusOr<ListeningSocket> socket;
  if (options.socket.has_value()) {
    socket = *std::exchange(options.socket, std::nullopt);
  } else if (on_path) {
    socket = ListenOnPath(std::string(absl::StripPrefix(options.address, kUnixPrefix)));
  } else {
    socket = ListenOn(options.address, options.port);
  }
  if (!socket.ok()) return socket.status();
  std::string target = options.address;
  if (on_path) {
    options.credentials.reset();  // the kernel identifies the peer
  } else {
    std::string reach = socket->address;
    if (reach == "0.0.0.0") reach = "127.0.0.1";
    if (reach == "::") reach = "::1";
    target = HostPort(reach, socket->port);
  }
  auto server = std::make_unique<GrpcServer>(options, *std::move(journal));
  server->set_target(std::move(target));
  const Listener::Peers peers = on_path                           ? Listener::Peers::kSameUser
                                : options.credentials.has_value() ? Listener::Peers::kTls
                                                                  : Listener::Peers::kPlainText;
  if (!server->Serve(*std::move(socket), options.credentials, peers, options.another_service)) {
    return absl::InternalError(
        "gRPC cannot start a service with these certificates; check --tls-cert, --tls-key and "
        "--tls-ca");
  }
  return server;
}

}  // namespace ddprun
