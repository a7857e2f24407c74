// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/report_node_loss.h"

#include <chrono>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/node/network.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "proto/text.h"
#include "proto/version.h"
#include "rendezvous/client/control_client.h"

namespace ddprun {
namespace {

bool IsUntold(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return true;
  // Nothing listens: the service was inside the agent, or has ended before it.
  return absl::IsUnavailable(status) && !absl::StrContains(status.message(), "connection refused");
}

}  // namespace

void TellServiceOfDeath(const Options& options, const NodeId& node_id,
                        const std::optional<TlsCredentials>& credentials, const std::string& how) {
  const std::optional<Endpoint> service = ServiceWithoutAgent(options);
  if (!service.has_value()) return;
  const std::string name = HostPort(service->host, service->port);
  const LossReport report{
      .protocol_version = kProtocolVersion,
      .run_id = options.run_id,
      .node_id = node_id,
      .reason =
          absl::StrCat("its agent was ", how, "; check dmesg there for the out-of-memory killer")};
  const absl::Status status =
      ReportLoss(MakeServiceChannel(name, credentials, service->host), report, kLossReportTimeout);
  if (!IsUntold(status)) return;
  const double lease = std::chrono::duration<double>(options.lease).count();
  std::fprintf(stderr,
               "ddprun: the rendezvous service at %s could not be told: %s; the other nodes "
               "notice when the lease (%g s) is over\n",
               name.c_str(), std::string(status.message()).c_str(), lease);
}

}  // namespace ddprun
