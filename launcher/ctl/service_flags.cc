// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/service_flags.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "proto/text.h"

namespace ddprun {
namespace {

constexpr double kTimeoutSecondsMax = 3600;

}  // namespace

const std::vector<Flag> kServiceFlags = {
    {"--rdzv-endpoint", 0, "HOST[:PORT]", "Address of the rendezvous service (port 29400)."},
    {"--master-addr", 0, "ADDRESS", "Or, for runs that were started with it: node 0."},
    {"--master-port", 0, "PORT", "Its port (29500)."},
    {"--socket", 0, "PATH", "Or, for a ddprun-rendezvous on this machine with --host unix:PATH."},
    {"--rdzv-id", 0, "ID", "Name of the run (all runs of the service)."},
    {"--timeout", 0, "SECONDS", "Time to wait for an answer (5)."},
};

std::string TargetOf(const ServiceAddress& service) {
  if (!service.socket.empty()) return absl::StrCat("unix:", service.socket);
  return HostPort(service.endpoint.host, service.endpoint.port);
}

absl::StatusOr<ServiceAddress> ReadServiceAddress(Reader& reader, const std::string& see_help) {
  const std::optional<Endpoint> endpoint = reader.Endpoint("--rdzv-endpoint", kEndpointPortDefault);
  const std::string address = reader.Text("--master-addr", "an address", "");
  const int port = reader.Integer("--master-port", 1, 65535).value_or(kPortDefault);
  const std::string socket = reader.Text("--socket", "a path", "");
  if (!reader.status().ok()) return reader.status();
  if (!socket.empty()) return ServiceAddress{.endpoint = {}, .socket = socket};
  if (endpoint.has_value() && endpoint->port == 0) {
    return absl::InvalidArgumentError("--rdzv-endpoint needs the port of the service, not 0");
  }
  if (endpoint.has_value()) return ServiceAddress{.endpoint = *endpoint, .socket = ""};
  if (!address.empty()) return ServiceAddress{.endpoint = {address, port}, .socket = ""};
  return absl::InvalidArgumentError(absl::StrCat(
      "which rendezvous service? give --rdzv-endpoint HOST[:PORT], or --master-addr", see_help));
}

std::chrono::milliseconds ReadServiceTimeout(Reader& reader) {
  return reader.Seconds("--timeout", kTimeoutSecondsMax).value_or(kStatusTimeoutDefault);
}

}  // namespace ddprun
