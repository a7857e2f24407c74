// SPDX-License-Identifier: Apache-2.0
#include "launcher/status_command.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/network.h"
#include "launcher/status_text.h"
#include "rendezvous/status_client.h"

namespace ddprun {

absl::StatusOr<std::shared_ptr<ServiceChannel>> OpenServiceChannel(const ServiceAddress& service,
                                                                   const Security& security,
                                                                   const std::string& run_id,
                                                                   const std::string& what) {
  if (!service.socket.empty()) return MakeServiceChannel(TargetOf(service));
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
