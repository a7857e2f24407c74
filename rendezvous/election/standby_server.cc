// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/election/standby_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/listener/listener.h"
#include "rendezvous/listener/peer_guard.h"
#include "rendezvous/wire/grpc_channel.h"

namespace ddprun {
namespace {

constexpr char kSessionMethod[] = "/ddprun.v1.Rendezvous/Session";

grpc::Status LeadsNow() { return {grpc::StatusCode::ABORTED, "this service leads now"}; }

grpc::Status StandsBy(const std::string& leader) {
  return {grpc::StatusCode::UNAVAILABLE,
          leader.empty() ? "this service stands by, and none leads yet"
                         : absl::StrCat("this service stands by; the one at ", leader, " leads")};
}

class Calls;

// One call. Whoever takes it out of Calls ends it.
class Call final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Call(Calls& calls) : calls_(calls) {}
  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  Calls& calls_;
};

// Every call that comes, of any service.
class Calls final : public grpc::CallbackGenericService {
 public:
  Calls(PeerGuard& guard, std::function<void()> on_session)
      : guard_(guard), on_session_(std::move(on_session)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    guard_.Called(context->peer());
    auto* const call = new Call(*this);
    bool is_held = false;
    grpc::Status status;
    {
      absl::MutexLock lock(&mutex_);
      is_held = context->method() == kSessionMethod && held_.size() < kHeldCallsMax && !is_closed_;
      if (is_held) held_.insert(call);
      status = is_closed_ ? LeadsNow() : StandsBy(leader_);
    }
    if (is_held) {
      on_session_();
    } else {
      call->Finish(status);
    }
    return call;
  }

  bool holds_sessions() {
    absl::MutexLock lock(&mutex_);
    return !held_.empty();
  }

  // Later ones end with it too: a node may come back over a connection that is not closed yet, and
  // one that was held then would be cancelled with the server.
  void Close() {
    {
      absl::MutexLock lock(&mutex_);
      is_closed_ = true;
    }
    EndAll(LeadsNow(), "");
  }

  // `leader`: what later calls are told.
  void EndAll(const grpc::Status& status, const std::string& leader) {
    std::set<Call*> ended;
    {
      absl::MutexLock lock(&mutex_);
      leader_ = leader;
      ended.swap(held_);
    }
    for (Call* const call : ended) call->Finish(status);
  }

  // Its peer has gone.
  void End(Call* call) {
    {
      absl::MutexLock lock(&mutex_);
      if (held_.erase(call) == 0) return;
    }
    call->Finish(grpc::Status::CANCELLED);
  }

 private:
  PeerGuard& guard_;
  const std::function<void()> on_session_;
  absl::Mutex mutex_;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  std::set<Call*> held_ ABSL_GUARDED_BY(mutex_);
};

void Call::OnCancel() { calls_.End(this); }

class GrpcStandbyServer final : public StandbyServer {
 public:
  explicit GrpcStandbyServer(std::function<void()> on_session)
      : guard_(PeerGuard::NodeIds::kNotProven, std::nullopt),
        calls_(guard_, std::move(on_session)) {}

  ~GrpcStandbyServer() override {
    guard_.SetListener(nullptr);
    listener_.reset();
    calls_.Close();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kCloseTimeout);
  }

  bool Serve(ListeningSocket socket, const std::optional<TlsCredentials>& credentials,
             grpc::Service* another_service) {
    grpc::ServerBuilder builder;
    SetServerArguments(builder);
    SetServerKeepalive(builder);
    if (another_service != nullptr) builder.RegisterService(another_service);
    builder.RegisterCallbackGenericService(&calls_);
    acceptor_ = AddAcceptor(builder, credentials);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return false;
    Listener::Options listening{.peers = credentials.has_value() ? Listener::Peers::kTls
                                                                 : Listener::Peers::kPlainText};
    if (credentials.has_value()) {
      listening.hello_key = credentials->hello_key;
      listening.times = credentials->times;
    }
    listener_ =
        std::make_unique<Listener>(std::move(socket), std::move(listening), HandOverTo(*acceptor_));
    guard_.SetListener(listener_.get());
    return true;
  }

  bool holds_sessions() override { return calls_.holds_sessions(); }
  void SendAway(const std::string& leader) override { calls_.EndAll(StandsBy(leader), leader); }

 private:
  PeerGuard guard_;
  Calls calls_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;  // its calls use all of the above
  std::unique_ptr<Listener> listener_;    // last: it uses the acceptor
};

}  // namespace

absl::StatusOr<std::unique_ptr<StandbyServer>> StandbyServer::Start(
    ListeningSocket socket, const std::optional<TlsCredentials>& credentials,
    std::function<void()> on_session, grpc::Service* another_service) {
  PrepareGrpc();
  auto server = std::make_unique<GrpcStandbyServer>(std::move(on_session));
  if (!server->Serve(std::move(socket), credentials, another_service)) {
    return absl::InternalError(
        "gRPC cannot start a service with these certificates; check --tls-cert, --tls-key and "
        "--tls-ca");
  }
  return server;
}

}  // namespace ddprun
