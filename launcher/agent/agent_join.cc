// SPDX-License-Identifier: Apache-2.0
// How an agent opens what it needs, joins the run, and serves its workers' store.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent.h"
#include "launcher/base/limits.h"
#include "launcher/base/temp_dir.h"
#include "launcher/node/network.h"
#include "launcher/options/option_groups.h"
#include "launcher/placement/role_ranks.h"
#include "launcher/placement/worker_environ.h"
#include "proto/version.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

// An address that is none of this host's leads here by translation: --master-addr, --local-addr.
absl::StatusOr<ListeningSocket> ListenForWorkers(const std::string& address, int port) {
  absl::StatusOr<ListeningSocket> listener = ListenOn(address, port);
  if (absl::IsInvalidArgument(listener.status())) listener = ListenOn("::", port);
  if (absl::IsInvalidArgument(listener.status())) listener = ListenOn("0.0.0.0", port);
  return listener;
}

}  // namespace

absl::Status Agent::Open() {
  const ObserveOptions& observe = config_.options.observe;
  if (absl::Status status =
          observer_.Open(observe, config_.node_id, config_.host, workers_.logs().NoticeSink(),
                         [this] { session_events_.Wake(); });
      !status.ok()) {
    return status;
  }
  const std::string run_id = config_.options.run_id.empty() ? MakeRunId() : config_.options.run_id;
  absl::StatusOr<RendezvousEndpoint> rendezvous =
      OpenRendezvous(config_.options, config_.security, run_id, observer_.watcher());
  if (!rendezvous.ok()) return rendezvous.status();
  rendezvous_ = *std::move(rendezvous);
  if (absl::Status status = observer_.Serve(observe, rendezvous_.server.get()); !status.ok()) {
    return status;
  }
  if (rendezvous_.server != nullptr && !rendezvous_.name.empty())
    SendToHead(Serving{rendezvous_.port});
  const std::optional<int>& port = config_.options.master_port;
  const std::string address = config_.options.master_addr.value_or("127.0.0.1");
  if (rendezvous_.name.empty() && port.has_value() && IsThisMachine(address) &&
      !IsPortFree(address, *port)) {
    return absl::AlreadyExistsError(
        absl::StrCat("port ", *port, " at ", address,
                     " is in use; name another one with --master-port, or leave it out"));
  }
  supervisor_config_ = {.host = config_.host,
                        .service = rendezvous_.name,
                        .hosts_service = rendezvous_.server != nullptr,
                        .join_timeout = config_.options.join_timeout,
                        .shutdown_timeout = config_.options.stopping.shutdown_timeout,
                        .restart_timeout = config_.options.stopping.restart_timeout};
  config_.security.Forget();
  if (rendezvous_.server == nullptr) {
    channel_ = MakeServiceChannel(rendezvous_.target, config_.credentials, rendezvous_.host);
  }
  join_deadline_ = Now() + config_.options.join_timeout;
  if (config_.options.nodes != 1)  // the workers of one node need no interface
    nccl_conf_ = background_.Start<bool>([] { return NcclConfNamesInterfaces(ReadVariable); });
  BeginJoin(Now());
  return absl::OkStatus();
}

// ---- Joining

// MASTER_PORT of the next round, if this node gets rank 0 (of a role): a new one in each, so that a
// worker that is early does not meet the last round's store.
absl::Status Agent::TakeWorkerPorts() {
  stores_.resize(config_.has_role_stores() ? config_.programs.size() : 1);
  for (std::size_t store = 0; store < stores_.size(); ++store) {
    if (absl::Status status = TakeWorkerPort(store); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Agent::TakeWorkerPort(std::size_t store) {
  WorkerStoreDoor& door = stores_[store];
  // In a run of one node the service needs no port: --master-port is for the workers.
  const bool may_ask = rendezvous_.name.empty() && store == 0;
  const int asked = may_ask ? config_.options.master_port.value_or(0) : 0;
  if (asked != 0 && asked == door.port) return absl::OkStatus();  // it is still served
  absl::Status status = ListenAt(door, asked);
  // The service's number, free at another address, would be confusing; the number of another role's
  // store is free until its rank 0 listens there.
  const bool is_another_stores =
      std::any_of(stores_.begin(), stores_.begin() + static_cast<std::ptrdiff_t>(store),
                  [&door](const WorkerStoreDoor& other) { return other.port == door.port; });
  if (status.ok() && (door.port == rendezvous_.port || is_another_stores))
    status = ListenAt(door, asked);
  return status;
}

absl::Status Agent::ListenAt(WorkerStoreDoor& door, int asked) {
  if (config_.options.worker_store == WorkerStore::kRank0) {
    const absl::StatusOr<int> port = asked != 0 ? asked : FindFreePort(address_);
    if (port.ok()) door.port = *port;
    return port.status();
  }
  absl::StatusOr<ListeningSocket> listener =
      ListenForWorkers(EachAgentServes() ? kLoopback : address_, asked);
  if (!listener.ok()) return listener.status();
  door.port = listener->port;
  door.listener = *std::move(listener);
  return absl::OkStatus();
}

std::vector<RoleWorkers> Agent::RolesToJoin() const {
  if (!ShowsRoles(config_.options)) return {};
  std::vector<RoleWorkers> roles = RolesOf(config_.options, config_.places);
  for (std::size_t i = 0; config_.has_role_stores() && i < roles.size(); ++i)
    roles[i].worker_port = stores_[i].port;
  return roles;
}

std::vector<std::string> Agent::NetworkVariables(const Start& start) {
  // Workers of one node need no interface, and programs that connect several one-node runs
  // configure their own network.
  if (start.node_count == 1) return {};
  if (const auto named = TakeResult(nccl_conf_)) nccl_conf_names_interfaces_ = *named;
  const std::optional<Interface> interface = InterfaceOf(address_);
  if (!interface.has_value()) return {};
  return InterfaceVariables(*interface, ReadVariable, nccl_conf_names_interfaces_);
}

// The name service may be slow, so another thread queries it; a number it need not be asked for.
void Agent::BeginJoin(TimePoint now) {
  join_retry_.reset();
  if (!config_.options.local_addr.empty()) return Join(config_.options.local_addr, now);
  if (rendezvous_.name.empty()) return Join(config_.options.master_addr.value_or("127.0.0.1"), now);
  if (IsNumericAddress(rendezvous_.host)) {
    const auto address = AdvertisedAddress(rendezvous_.host, rendezvous_.port);
    return address.ok() ? Join(*address, now) : RetryJoin(address.status(), now);
  }
  own_address_ = background_.Start<absl::StatusOr<std::string>>(
      [host = rendezvous_.host, port = rendezvous_.port] { return AdvertisedAddress(host, port); });
  resolve_notice_ = now + kNoticeDelay;
}

void Agent::ContinueJoin(TimePoint now) {
  if (join_retry_.has_value() && *join_retry_ <= now) BeginJoin(now);
  if (!own_address_.valid()) return;
  if (const auto address = TakeResult(own_address_)) {
    resolve_notice_.reset();
    if (address->ok()) return Join(**address, now);
    return RetryJoin(address->status(), now);
  }
  const absl::Status slow = absl::DeadlineExceededError(
      absl::StrCat("the name service has not answered for ", rendezvous_.host));
  if (now >= join_deadline_) {
    own_address_ = {};
    RetryJoin(slow, now);
  } else if (resolve_notice_.has_value() && now >= *resolve_notice_) {
    resolve_notice_.reset();
    events_.push_back(Connecting{std::string(slow.message()), JoinTimeLeft(now)});
  }
}

std::optional<TimePoint> Agent::NextJoinDeadline() const {
  if (!own_address_.valid()) return join_retry_;
  return resolve_notice_.has_value() ? std::min(*resolve_notice_, join_deadline_) : join_deadline_;
}

std::chrono::milliseconds Agent::JoinTimeLeft(TimePoint now) const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(join_deadline_ - now);
}

void Agent::RetryJoin(const absl::Status& status, TimePoint now) {
  if (now >= join_deadline_) {
    events_.push_back(SessionEnded{absl::DeadlineExceededError(status.message())});
    return;
  }
  events_.push_back(Connecting{std::string(status.message()), JoinTimeLeft(now)});
  join_retry_ = std::min(join_deadline_, now + kResolveRetryInterval);
}

void Agent::Join(const std::string& address, TimePoint now) {
  address_ = address;
  if (absl::Status status = TakeWorkerPorts(); !status.ok()) return RetryJoin(status, now);
  const Options& options = config_.options;
  ddprun::Join join;
  join.protocol_version = kProtocolVersion;
  join.software_version = kSoftwareVersion;
  join.run_id = options.run_id;
  join.node_id = config_.node_id;
  join.host = config_.host;
  join.node_rank = options.node_rank;
  if (options.nodes == 1) join.node_rank = 0;
  join.local_world_size = config_.local_world_size();
  join.nodes_min = options.nodes_min;
  join.nodes_max = options.nodes;
  join.restarts_max = options.restarts.max_restarts;
  join.restart_policy = options.restarts.policy;
  join.hosts_service = supervisor_config_.hosts_service;
  join.address = address_;
  join.worker_port = stores_.front().port;
  join.addresses = OwnAddresses();
  join.join_timeout = JoinTimeLeft(now);
  join.last_call = options.last_call;
  join.lease = options.lease;
  join.hosts_service = rendezvous_.server != nullptr;
  join.role = options.role;
  join.roles = RolesToJoin();
  join.ranks_by_role = options.ranks_by_role;
  join.evict_stragglers = options.hangs.evict_stragglers;
  join.stop_timeout = StopTimeout(options.stopping);
  join.hears_preemption = true;
  SessionClient::Handler handler = [this](SessionEvent event) {
    session_events_.Post(std::move(event));
  };
  session_ =
      rendezvous_.server != nullptr
          ? rendezvous_.server->OpenSession(join, std::move(handler))
          : SessionClient::Open(channel_, std::move(join), JoinTimeLeft(now), std::move(handler));
}

// Changes where `start` says that workers find their stores, if this agent serves them alone.
absl::Status Agent::ServeStores(Start& start) {
  absl::Status status = CheckStart(start, config_.options, config_.programs.size());
  if (status.ok()) status = RestoreTempDir(config_.temp_dir);
  if (status.ok() && !config_.shared_dir.empty()) status = RestoreTempDir(config_.shared_dir);
  for (std::size_t store = 0; status.ok() && store < stores_.size(); ++store)
    status = ServeStore(start, store);
  if (!EachAgentServes()) return status;
  start.master_addr = kLoopback;
  start.master_port = stores_.front().port;
  for (std::size_t i = 0; config_.has_role_stores() && i < start.roles.size(); ++i) {
    start.roles[i].master_addr = kLoopback;
    start.roles[i].master_port = stores_[i].port;
  }
  return status;
}

absl::Status Agent::ServeStore(const Start& start, std::size_t store) {
  std::unique_ptr<StoreProxy>& store_proxy = stores_[store].proxy;
  if (store_proxy != nullptr) {
    if (absl::Status status = store_proxy->EnsureListening(); !status.ok()) return status;
  } else {
    absl::StatusOr<std::unique_ptr<StoreProxy>> proxy = StoreProxy::Start(
        {.socket_path = config_.agent_socket(static_cast<int>(store)),
         .channel = channel_,
         .connector = rendezvous_.server ? rendezvous_.server->store_connector() : nullptr,
         .run_id = start.run_id,
         .node_id = config_.node_id,
         .space = config_.has_role_stores() ? SectionsOf(config_.options)[store]->role : "",
         .reconnect_timeout = reconnect_timeout_,
         .on_notice = workers_.logs().NoticeSink(),
         .ask_owners = [this, store](std::vector<OwnerQuery> queries) {
           owners_.Ask(store, std::move(queries));
         }});
    if (!proxy.ok()) return proxy.status();
    store_proxy = *std::move(proxy);
  }
  store_proxy->SetRound(start.round);
  return ServeTcpStore(start, store);
}

// In a run of several nodes, also while a round has one.
bool Agent::EachAgentServes() const {
  return config_.options.worker_store == WorkerStore::kAgent && config_.options.nodes != 1;
}

absl::Status Agent::ServeTcpStore(const Start& start, std::size_t store) {
  std::optional<ListeningSocket> listener = std::exchange(stores_[store].listener, std::nullopt);
  const int node_rank = config_.has_role_stores() ? start.roles[store].node_rank : start.node_rank;
  const bool serves = node_rank == 0 || EachAgentServes();
  if (!listener.has_value() || !serves) return absl::OkStatus();
  return stores_[store].proxy->ServeTcpStore(*std::move(listener));
}

}  // namespace ddprun
