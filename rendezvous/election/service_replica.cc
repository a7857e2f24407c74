// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/election/service_replica.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {

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
