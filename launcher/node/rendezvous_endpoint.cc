// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/rendezvous_endpoint.h"

#include <unistd.h>

#include <ctime>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/base/limits.h"
#include "launcher/node/network.h"
#include "proto/text.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/election/copied_service.h"
#include "rendezvous/election/elected_service.h"
#include "rendezvous/process/resource_limit.h"

namespace ddprun {
namespace {

// Of a run of one node: nobody but commands of this user at `socket`, where one is wanted, can
// reach it.
absl::StatusOr<RendezvousEndpoint> LocalRendezvous(const std::string& socket,
                                                   const std::string& run_id, RunWatcher* watcher) {
  RendezvousEndpoint rendezvous;
  if (socket.empty()) {
    rendezvous.server = RendezvousServer::StartLocal(run_id, watcher);
    return rendezvous;
  }
  auto server = RendezvousServer::Start(
      {.address = absl::StrCat("unix:", socket), .default_run_id = run_id, .watcher = watcher});
  if (!server.ok()) return server.status();
  rendezvous.server = *std::move(server);
  return rendezvous;
}

RendezvousEndpoint RendezvousAt(const Endpoint& endpoint) {
  RendezvousEndpoint rendezvous;
  rendezvous.host = endpoint.host;
  rendezvous.port = endpoint.port;
  rendezvous.name = EndpointText(endpoint);
  rendezvous.target = rendezvous.name;
  return rendezvous;
}

// All addresses of this machine: for a node that must host (is_host=true) at an address that no
// interface has, such as that of a Kubernetes service.
std::string AnyAddress() { return IsPortFree("::", 0) ? "::" : "0.0.0.0"; }

// Where to listen for nodes that know this machine as `host`.
std::string AddressToListenAt(const std::string& host) {
  return IsOwnNameOnLoopback(host) ? AnyAddress() : host;
}

// `address`: to listen at; other nodes may know another one.
absl::StatusOr<RendezvousEndpoint> Host(RendezvousEndpoint rendezvous, const Security& security,
                                        const std::string& run_id, const std::string& address,
                                        RunWatcher* watcher) {
  auto credentials = security.ForHost();
  if (!credentials.ok()) return credentials.status();
  RaiseFileLimit();
  auto server = RendezvousServer::Start({.address = address,
                                         .port = rendezvous.port,
                                         .credentials = *std::move(credentials),
                                         .default_run_id = run_id,
                                         .watcher = watcher});
  if (!server.ok()) return server.status();
  if (rendezvous.port == 0) {
    rendezvous.port = (*server)->port();
    rendezvous.name = rendezvous.target = HostPort(rendezvous.host, rendezvous.port);
  }
  rendezvous.server = *std::move(server);
  return rendezvous;
}

absl::StatusOr<std::unique_ptr<ServiceReplica>> StartReplica(
    const Options& options, const Security& security, const std::vector<Endpoint>& services,
    std::size_t own, RendezvousServer::Options server, ServiceReplica::Callbacks callbacks) {
  if (!options.journal.empty()) {
    auto etcd = ParseEtcdAddress(options.journal);
    if (!etcd.ok()) return etcd.status();
    auto probe = security.ForProbe();
    if (!probe.ok()) return probe.status();
    return StartElectedService({.server = std::move(server),
                                .probe_credentials = *std::move(probe),
                                .etcd = *std::move(etcd),
                                .etcd_tls = options.journal_tls,
                                .callbacks = std::move(callbacks)});
  }
  std::vector<std::string> names;
  for (const Endpoint& one : services) names.push_back(HostPort(one.host, one.port));
  auto node = security.ForNode(options.run_id, absl::StrCat("service-", HostName(), "-", getpid()));
  if (!node.ok()) return node.status();
  return StartCopiedService({.server = std::move(server),
                             .services = std::move(names),
                             .own = own,
                             .node_credentials = *std::move(node),
                             .callbacks = std::move(callbacks)});
}

// The first of the endpoint's services that is of this machine and is not there yet. Another node
// of this machine may take one at the same moment.
absl::StatusOr<RendezvousEndpoint> HostReplica(
    const Options& options, const Security& security, const std::string& run_id,
    RunWatcher* watcher, const std::function<void(const std::string&)>& on_note) {
  RendezvousEndpoint rendezvous = RendezvousAt(*options.endpoint);
  if (options.is_host == false) return rendezvous;
  std::vector<Endpoint> services = {{options.endpoint->host, options.endpoint->port, {}}};
  services.insert(services.end(), options.endpoint->others.begin(), options.endpoint->others.end());
  RaiseFileLimit();
  for (std::size_t own = 0; own < services.size(); ++own) {
    const Endpoint& here = services[own];
    if (!IsThisMachine(here.host) || !IsPortFree(here.host, here.port)) continue;
    auto credentials = security.ForHost();
    if (!credentials.ok()) return credentials.status();
    auto replica = StartReplica(options, security, services, own,
                                {.address = AddressToListenAt(here.host),
                                 .port = here.port,
                                 .credentials = *std::move(credentials),
                                 .default_run_id = run_id,
                                 .watcher = watcher},
                                {.on_note = on_note, .on_end = [on_note](const absl::Status& why) {
                                   on_note(std::string(why.message()));
                                 }});
    if (absl::IsAlreadyExists(replica.status())) continue;
    if (!replica.ok()) return replica.status();
    rendezvous.replica = *std::move(replica);
    break;
  }
  return rendezvous;
}

}  // namespace

bool HostsReplica(const Options& options) {
  return !options.journal.empty() || options.standby_nodes > 0;
}

absl::StatusOr<RendezvousEndpoint> OpenRendezvous(const Options& options, const Security& security,
                                                  const std::string& own_run_id,
                                                  RunWatcher* watcher,
                                                  std::function<void(const std::string&)> on_note) {
  if (HostsReplica(options)) return HostReplica(options, security, own_run_id, watcher, on_note);
  if (options.endpoint.has_value() && !options.standalone) {
    RendezvousEndpoint rendezvous = RendezvousAt(*options.endpoint);
    const bool is_address_here = IsThisMachine(rendezvous.host);
    const bool hosts_by_default = is_address_here && options.endpoint->others.empty();
    if (!options.is_host.value_or(hosts_by_default)) return rendezvous;
    absl::StatusOr<RendezvousEndpoint> hosted =
        Host(RendezvousAt(*options.endpoint), security, own_run_id,
             is_address_here ? AddressToListenAt(rendezvous.host) : AnyAddress(), watcher);
    // Another node of this machine, or a ddprun-rendezvous, listens there.
    if (absl::IsAlreadyExists(hosted.status())) return rendezvous;
    return hosted;
  }
  if (options.nodes == 1) return LocalRendezvous(options.service_socket, own_run_id, watcher);
  RendezvousEndpoint rendezvous =
      RendezvousAt({*options.master_addr, options.master_port.value_or(kPortDefault)});
  if (*options.node_rank != 0) return rendezvous;
  absl::StatusOr<RendezvousEndpoint> hosted =
      Host(std::move(rendezvous), security, own_run_id, AddressToListenAt(*options.master_addr),
           watcher);
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
