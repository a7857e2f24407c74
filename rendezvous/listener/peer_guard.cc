// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/peer_guard.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/wire/peer_name.h"

namespace ddprun {
namespace {

// Views that are valid as long as the call.
std::vector<absl::string_view> Properties(const grpc::ServerContextBase& context,
                                          const char* name) {
  const std::vector<grpc::string_ref> found = context.auth_context()->FindPropertyValues(name);
  std::vector<absl::string_view> values;
  values.reserve(found.size());
  for (const grpc::string_ref& value : found) values.emplace_back(value.data(), value.size());
  return values;
}

std::vector<absl::string_view> Uris(const grpc::ServerContextBase& context) {
  return Properties(context, GRPC_PEER_URI_PROPERTY_NAME);
}

}  // namespace

void PeerGuard::SetListener(Listener* listener) {
  absl::MutexLock lock(&mutex_);
  listener_ = listener;
}

// An interceptor factory, since it is the one place that all calls pass, also of gRPC's own
// services.
class PeerGuard::CallWatcher final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallWatcher(PeerGuard& guard) : guard_(guard) {}

  // Null: nothing is intercepted, which costs the call's messages nothing.
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

absl::Status PeerGuard::CheckNode(const grpc::ServerContextBase& context, const std::string& run_id,
                                  const std::string& node_id) const {
  if (node_ids_ == NodeIds::kNotProven) return absl::OkStatus();
  // The default run has two names: its own and the empty one.
  std::vector<std::string> good = {NodeUri(run_id, node_id)};
  if (default_run_id_ && (run_id.empty() || run_id == *default_run_id_)) {
    good = {NodeUri("", node_id), NodeUri(*default_run_id_, node_id)};
  }
  for (const absl::string_view uri : Uris(context)) {
    if (std::find(good.begin(), good.end(), uri) != good.end()) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("the node calls itself '", Printable(node_id.substr(0, kNameBytesMax)),
                   "' of run '", Printable(run_id.substr(0, kNameBytesMax)),
                   "', and its certificate was made for another one"));
}

absl::StatusOr<std::string> PeerGuard::RunToAskAbout(const grpc::ServerContextBase& context,
                                                     const std::string& run_id) const {
  if (node_ids_ == NodeIds::kNotProven) return run_id;
  std::optional<std::string> own;
  for (const absl::string_view uri : Uris(context)) {
    const auto scope = ScopeOfUri(uri);
    if (!scope) continue;
    if (!scope->run_id) return run_id;
    own = scope->run_id->empty() ? default_run_id_ : scope->run_id;
  }
  if (own && !own->empty() && (run_id.empty() || run_id == *own)) return *own;
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate of the caller is for run '",
                   Printable(own.value_or("").substr(0, kNameBytesMax)), "' alone and not for ",
                   run_id.empty() ? "all runs" : absl::StrCat("run '", Printable(run_id), "'")));
}

absl::Status PeerGuard::CheckOperator(const grpc::ServerContextBase& context,
                                      bool of_all_runs) const {
  if (node_ids_ == NodeIds::kNotProven) return absl::OkStatus();
  bool is_node = false;
  for (const absl::string_view uri : Uris(context)) {
    const auto scope = ScopeOfUri(uri);
    if (!scope) continue;
    if (!scope->is_node && (!of_all_runs || !scope->run_id)) return absl::OkStatus();
    is_node |= scope->is_node;
  }
  return absl::PermissionDeniedError(
      is_node ? "the certificate of the caller is a node's, and only an operator may inject "
                "faults; use ddpctl with the run's secret"
              : "the certificate of the caller is for one run alone, and the end of the service "
                "concerns all runs; use ddpctl with the secret of the service");
}

std::string PeerGuard::OriginOf(const grpc::ServerContextBase& context) const {
  const char* const property = node_ids_ == NodeIds::kInCertificate
                                   ? GRPC_PEER_URI_PROPERTY_NAME
                                   : GRPC_X509_PEM_CERT_PROPERTY_NAME;
  const std::vector<absl::string_view> values = Properties(context, property);
  if (!values.empty()) return std::string(values.front());
  const std::string address = AddressOfPeer(context.peer());
  return address.empty() ? "this machine" : address;
}

}  // namespace ddprun
