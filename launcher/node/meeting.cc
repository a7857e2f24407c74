// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/meeting.h"

#include <ctime>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/base/limits.h"
#include "launcher/node/network.h"
#include "rendezvous/base/file_limit.h"
#include "rendezvous/base/own_address.h"
#include "rendezvous/service/local_server.h"

namespace ddprun {
namespace {

Meeting MeetAlone(const std::string& run_id, RunWatcher* watcher) {
  Meeting meeting;
  meeting.server = MakeLocalServer(run_id, watcher);
  return meeting;
}

Meeting MeetAt(const Endpoint& endpoint) {
  Meeting meeting;
  meeting.host = endpoint.host;
  meeting.port = endpoint.port;
  meeting.name = JoinHostPort(endpoint.host, endpoint.port);
  meeting.target = meeting.name;
  return meeting;
}

// All of this machine's: for a node that is told to host (is_host=true) at an address that is no
// interface's, as that of a Kubernetes service is.
std::string AnyAddress() { return IsPortFree("::", 0) ? "::" : "0.0.0.0"; }

// Where to listen for nodes that know this machine as `host`.
std::string AddressToListenAt(const std::string& host) {
  return IsOwnNameOnLoopback(host) ? AnyAddress() : host;
}

// `address`: to listen at; other nodes may know another one.
absl::StatusOr<Meeting> Host(Meeting meeting, const Security& security, const std::string& run_id,
                             const std::string& address, RunWatcher* watcher) {
  auto credentials = security.ForHost();
  if (!credentials.ok()) return credentials.status();
  RaiseFileLimit();
  auto server = RendezvousServer::Start({.address = address,
                                         .port = meeting.port,
                                         .credentials = *std::move(credentials),
                                         .default_run_id = run_id,
                                         .watcher = watcher});
  if (!server.ok()) return server.status();
  if (meeting.port == 0) {
    meeting.port = (*server)->port();
    meeting.name = meeting.target = JoinHostPort(meeting.host, meeting.port);
  }
  meeting.server = *std::move(server);
  return meeting;
}

}  // namespace

absl::StatusOr<Meeting> OpenMeeting(const Options& options, const Security& security,
                                    const std::string& own_run_id, RunWatcher* watcher) {
  if (options.endpoint.has_value() && !options.standalone) {
    Meeting meeting = MeetAt(*options.endpoint);
    const bool is_address_here = IsThisMachine(meeting.host);
    if (!options.is_host.value_or(is_address_here)) return meeting;
    absl::StatusOr<Meeting> hosted =
        Host(MeetAt(*options.endpoint), security, own_run_id,
             is_address_here ? AddressToListenAt(meeting.host) : AnyAddress(), watcher);
    // Another node of this machine, or a ddprun-rendezvous, was first.
    if (absl::IsAlreadyExists(hosted.status())) return meeting;
    return hosted;
  }
  if (options.nodes == 1) return MeetAlone(own_run_id, watcher);
  Meeting meeting = MeetAt({*options.master_addr, options.master_port.value_or(kPortDefault)});
  if (*options.node_rank != 0) return meeting;
  absl::StatusOr<Meeting> hosted = Host(std::move(meeting), security, own_run_id,
                                        AddressToListenAt(*options.master_addr), watcher);
  if (absl::IsAlreadyExists(hosted.status())) {
    return absl::AlreadyExistsError(
        absl::StrCat(hosted.status().message(),
                     "; name another one with --master-port on all nodes, or --rdzv-endpoint if a "
                     "ddprun-rendezvous serves there"));
  }
  return hosted;
}

std::optional<Endpoint> ServiceWithoutAgent(const Options& options) {
  if (!UsesNetwork(options)) return std::nullopt;
  if (options.endpoint.has_value()) return options.endpoint;
  if (*options.node_rank == 0) return std::nullopt;
  return Endpoint{*options.master_addr, options.master_port.value_or(kPortDefault)};
}

std::string MakeRunId() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::random_device random;
  return absl::StrFormat("%04d%02d%02d-%02d%02d%02d-%06x", local.tm_year + 1900, local.tm_mon + 1,
                         local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                         random() & 0xFFFFFFu);
}

}  // namespace ddprun
