// SPDX-License-Identifier: Apache-2.0
#include "launcher/status_command.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/network.h"
#include "launcher/status_text.h"
#include "rendezvous/status_client.h"

namespace ddprun {

absl::StatusOr<std::string> AskForStatus(const StatusOptions& options, const Security& security) {
  // A certificate as a node has one, of nobody in any run.
  auto credentials = security.ForNode(absl::StrCat("status-", HostName(), "-", getpid()));
  if (!credentials.ok()) return credentials.status();
  const std::string service = JoinHostPort(options.service.host, options.service.port);
  const absl::StatusOr<ServiceStatus> status =
      GetStatus(MakeServiceChannel(service, *std::move(credentials), options.service.host),
                options.run_id, options.timeout);
  if (!status.ok()) return status.status();
  return options.json ? StatusJson(*status, service) : StatusText(*status, service);
}

}  // namespace ddprun
