// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/status_command.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/ctl/status_text.h"
#include "launcher/node/network.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/client/control_client.h"

namespace ddprun {

namespace {

// The service lets in its own user and root alone; the other way round, what it says is believed
// only from this user or root. Nothing to say where nothing listens: the call says that.
absl::Status CheckServer(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path) return absl::OkStatus();
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  const OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid == geteuid() ||
      peer.uid == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat("what listens at ", path, " belongs to user ",
                                                  peer.uid, ", not to user ", geteuid(),
                                                  " or root; ask as that user, or check the path"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<ServiceChannel>> OpenServiceChannel(const ServiceAddress& service,
                                                                   const Security& security,
                                                                   const std::string& run_id,
                                                                   const std::string& what) {
  if (!service.socket.empty()) {
    if (absl::Status status = CheckServer(service.socket); !status.ok()) return status;
    return MakeServiceChannel(TargetOf(service));
  }
  auto credentials = security.ForOperator(run_id.empty() ? std::nullopt : std::optional(run_id),
                                          absl::StrCat(what, "-", HostName(), "-", getpid()));
  if (!credentials.ok()) return credentials.status();
  return MakeServiceChannel(TargetOf(service), *std::move(credentials), service.endpoint.host);
}

absl::StatusOr<std::string> AskForStatus(const StatusOptions& options, const Security& security) {
  const auto channel = OpenServiceChannel(options.service, security, options.run_id, "status");
  if (!channel.ok()) return channel.status();
  const absl::StatusOr<ServiceStatus> status = GetStatus(*channel, options.run_id, options.timeout);
  if (!status.ok()) return status.status();
  const std::string service = TargetOf(options.service);
  return options.json ? StatusJson(*status, service) : StatusText(*status, service);
}

}  // namespace ddprun
