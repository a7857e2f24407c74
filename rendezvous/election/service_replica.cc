// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/election/service_replica.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {

ServiceReplica::ServiceReplica(ListeningSocket socket, std::string target, Callbacks callbacks)
    : socket_(std::move(socket)), target_(std::move(target)), callbacks_(std::move(callbacks)) {}

std::vector<RunStatus> ServiceReplica::Status() {
  const auto server = Server();
  return server == nullptr ? std::vector<RunStatus>() : server->Status();
}

void ServiceReplica::WaitUntilDrained(std::chrono::milliseconds timeout) {
  if (const auto server = Server()) server->WaitUntilDrained(timeout);
}

std::shared_ptr<RendezvousServer> ServiceReplica::Server() {
  Lock lock(mutex_);
  return server_;
}

bool ServiceReplica::IsStopping() {
  Lock lock(mutex_);
  return stopping_;
}

void ServiceReplica::Note(const std::string& sentence) {
  if (sentence == noted_) return;
  noted_ = sentence;
  callbacks_.on_note(sentence);
}

absl::StatusOr<ListeningSocket> Share(const ListeningSocket& socket) {
  OwnedFd copy(fcntl(socket.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot duplicate the listening socket: ", ErrnoText(errno)));
  }
  return ListeningSocket{std::move(copy), socket.address, socket.port};
}

absl::StatusOr<std::string> TargetOf(const ListeningSocket& socket) {
  if (socket.address != "0.0.0.0" && socket.address != "::")
    return HostPort(socket.address, socket.port);
  auto outward = OutwardAddress();
  if (!outward.ok()) return outward.status();
  return HostPort(*outward, socket.port);
}

}  // namespace ddprun
