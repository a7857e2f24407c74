// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/peer_guard.h"

#include <grpc/grpc_security_constants.h>

#include "absl/strings/str_cat.h"
#include "rendezvous/credentials.h"
#include "rendezvous/printable.h"

namespace ddprun {

void PeerGuard::SetListener(Listener* listener) {
  absl::MutexLock lock(&mutex_);
  listener_ = listener;
}

// Not an interceptor's work, but the one place that all calls pass, gRPC's own services included.
class PeerGuard::CallWatcher final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallWatcher(PeerGuard& guard) : guard_(guard) {}

  // Nothing is intercepted: a null costs the call's messages nothing.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    guard_.Called(call->server_context()->peer());
    return nullptr;
  }

 private:
  PeerGuard& guard_;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
PeerGuard::MakeCallWatcher() {
  return std::make_unique<CallWatcher>(*this);
}

void PeerGuard::Called(const std::string& peer) {
  absl::MutexLock lock(&mutex_);
  if (listener_ != nullptr) listener_->Proven(peer);
}

absl::Status PeerGuard::CheckNodeId(const grpc::ServerContextBase& context,
                                    const std::string& node_id) const {
  if (node_ids_ == NodeIds::kNotProven) return absl::OkStatus();
  const std::string expected = NodeUri(node_id);
  for (const grpc::string_ref& uri :
       context.auth_context()->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    if (uri == expected) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("the node calls itself '", Printable(node_id.substr(0, kNameBytesMax)),
                   "' and its certificate was made for another one"));
}

}  // namespace ddprun
