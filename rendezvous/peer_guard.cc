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

void PeerGuard::Called(const grpc::ServerContextBase& context) {
  absl::MutexLock lock(&mutex_);
  if (listener_ != nullptr) listener_->Proven(context.peer());
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
