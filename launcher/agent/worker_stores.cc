// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/worker_stores.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "launcher/base/temp_dir.h"
#include "launcher/node/network.h"
#include "launcher/options/options.h"
#include "launcher/placement/role_ranks.h"
#include "launcher/placement/worker_environ.h"

namespace ddprun {
namespace {

// Where a node serves torch's TCPStore if each does.
constexpr char kLoopback[] = "127.0.0.1";

// An address that is none of this host's leads here by translation: --master-addr, --local-addr.
absl::StatusOr<ListeningSocket> ListenForWorkers(const std::string& address, int port) {
  absl::StatusOr<ListeningSocket> listener = ListenOn(address, port);
  if (absl::IsInvalidArgument(listener.status())) listener = ListenOn("::", port);
  if (absl::IsInvalidArgument(listener.status())) listener = ListenOn("0.0.0.0", port);
  return listener;
}

}  // namespace

absl::Status WorkerStores::TakePorts(const std::string& address) {
  doors_.resize(config_.has_role_stores() ? config_.programs.size() : 1);
  for (std::size_t store = 0; store < doors_.size(); ++store) {
    if (absl::Status status = TakePort(store, address); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status WorkerStores::TakePort(std::size_t store, const std::string& address) {
  Door& door = doors_[store];
  // In a run of one node the service needs no port: --master-port is for the workers.
  const bool may_ask = session_.service().name.empty() && store == 0;
  const int asked = may_ask ? config_.options.master_port.value_or(0) : 0;
  if (asked != 0 && asked == door.port) return absl::OkStatus();  // it is still served
  absl::Status status = ListenAt(door, address, asked);
  // The service's number, free at another address, would be confusing; the number of another role's
  // store is free until its rank 0 listens there.
  const bool is_another_stores =
      std::any_of(doors_.begin(), doors_.begin() + static_cast<std::ptrdiff_t>(store),
                  [&door](const Door& other) { return other.port == door.port; });
  if (status.ok() && (door.port == session_.service().port || is_another_stores))
    status = ListenAt(door, address, asked);
  return status;
}

absl::Status WorkerStores::ListenAt(Door& door, const std::string& address, int asked) {
  if (config_.options.worker_store == WorkerStore::kRank0) {
    const absl::StatusOr<int> port = asked != 0 ? asked : FindFreePort(address);
    if (port.ok()) door.port = *port;
    return port.status();
  }
  absl::StatusOr<ListeningSocket> listener =
      ListenForWorkers(EachNodeServes() ? kLoopback : address, asked);
  if (!listener.ok()) return listener.status();
  door.port = listener->port;
  door.listener = *std::move(listener);
  return absl::OkStatus();
}

std::vector<RoleWorkers> WorkerStores::Roles() const {
  if (!ShowsRoles(config_.options)) return {};
  std::vector<RoleWorkers> roles = RolesOf(config_.options, config_.places);
  for (std::size_t i = 0; config_.has_role_stores() && i < roles.size(); ++i)
    roles[i].worker_port = doors_[i].port;
  return roles;
}

absl::Status WorkerStores::Serve(Start& start) {
  absl::Status status = CheckStart(start, config_.options, config_.programs.size());
  if (status.ok()) status = RestoreTempDir(config_.temp_dir);
  if (status.ok() && !config_.shared_dir.empty()) status = RestoreTempDir(config_.shared_dir);
  for (std::size_t store = 0; status.ok() && store < doors_.size(); ++store)
    status = ServeStore(start, store);
  if (!EachNodeServes()) return status;
  start.master_addr = kLoopback;
  start.master_port = port();
  for (std::size_t i = 0; config_.has_role_stores() && i < start.roles.size(); ++i) {
    start.roles[i].master_addr = kLoopback;
    start.roles[i].master_port = doors_[i].port;
  }
  return status;
}

absl::Status WorkerStores::ServeStore(const Start& start, std::size_t store) {
  std::unique_ptr<StoreProxy>& store_proxy = doors_[store].proxy;
  if (store_proxy != nullptr) {
    if (absl::Status status = store_proxy->EnsureListening(); !status.ok()) return status;
  } else {
    RendezvousServer* const server = session_.service().server.get();
    absl::StatusOr<std::unique_ptr<StoreProxy>> proxy = StoreProxy::Start(
        {.socket_path = config_.agent_socket(static_cast<int>(store)),
         .channel = session_.channel(),
         .connector = server != nullptr ? server->store_connector() : nullptr,
         .run_id = start.run_id,
         .node_id = config_.node_id,
         .space = config_.has_role_stores() ? SectionsOf(config_.options)[store]->role : "",
         .reconnect_timeout = session_.reconnect_timeout(),
         .on_notice = on_notice_,
         .ask_owners = [this, store](std::vector<OwnerQuery> queries) {
           owners_.Ask(store, std::move(queries));
         }});
    if (!proxy.ok()) return proxy.status();
    store_proxy = *std::move(proxy);
  }
  store_proxy->SetRound(start.round);
  return ServeTcpStore(start, store);
}

bool WorkerStores::EachNodeServes() const {
  return config_.options.worker_store == WorkerStore::kAgent && config_.options.nodes != 1;
}

absl::Status WorkerStores::ServeTcpStore(const Start& start, std::size_t store) {
  std::optional<ListeningSocket> listener = std::exchange(doors_[store].listener, std::nullopt);
  const int node_rank = config_.has_role_stores() ? start.roles[store].node_rank : start.node_rank;
  const bool serves = node_rank == 0 || EachNodeServes();
  if (!listener.has_value() || !serves) return absl::OkStatus();
  return doors_[store].proxy->ServeTcpStore(*std::move(listener));
}

// The store's stream shares the session's connection but has no lease of its own.
void WorkerStores::OnSessionEvent(const SessionEvent& event) {
  const auto* ended = std::get_if<SessionEnded>(&event);
  if (ended == nullptr && !std::holds_alternative<Reconnected>(event)) return;
  for (const Door& door : doors_) {
    if (door.proxy == nullptr) continue;
    if (ended == nullptr) {
      door.proxy->ServiceIsBack();
    } else {
      door.proxy->Fail(
          ended->status.ok()
              ? absl::UnavailableError("the rendezvous service has ended the node's session")
              : ended->status);
    }
  }
}

void WorkerStores::OnAnswers(OwnerAnswers& answers) {
  for (OwnerAnswer& answer : answers.answers) {
    const std::size_t store = OwnerLookups::TakeStore(answer);
    if (store < doors_.size() && doors_[store].proxy != nullptr)
      doors_[store].proxy->OnOwners({answer});
  }
}

}  // namespace ddprun
