// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_exchange.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "proto/json_text.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/proxy/channel_connector.h"

namespace ddprun {

// Members that a node of another version does not send keep their defaults; unknown members are
// ignored.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(InterfaceFacts, name, mtu, up, loopback)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    NodeFacts, node, host, address, version, hosts_service, probe_port, probe_key, interface,
    interface_ipv6, interfaces, default_routes, name_address, name_seconds, master_addr,
    master_resolved, gloo_socket_ifname, nccl_socket_ifname, service_port, service_port_holder,
    ephemeral_ports, nofile, nofile_hard, memlock, processes, processes_left, rdma, shm_bytes,
    shm_free, memory_free, memory_limit, cpu_quota, cpus, workers, workers_error, kernel,
    ptrace_scope, may_ptrace, cgroup, overcommit, core_files, core_pattern, driver, gpus,
    gpu_models, libraries, packages, environment, folder, program, program_hash, program_error,
    secret, secret_error)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PairFacts, from, to, error, rtt_seconds,
                                                skew_seconds, skew_uncertainty, bytes_per_second)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DoctorReport, exit_code, text, json)

namespace {

using std::chrono::milliseconds;
using Json = nlohmann::json;

// The service's deadline lies this much behind the nodes' own.
constexpr milliseconds kJoinSlack{2000};

}  // namespace

std::string Encode(const NodeFacts& facts) {
  std::string words = JsonText(Json(facts));
  if (words.size() <= kFactsBytesMax) return words;
  NodeFacts fewer = facts;
  fewer.environment.clear();
  return JsonText(Json(fewer));
}

std::string Encode(const std::vector<PairFacts>& pairs) { return JsonText(Json(pairs)); }

std::string Encode(const DoctorReport& report) {
  std::string words = JsonText(Json(report));
  if (words.size() <= kReportBytesMax) return words;
  return JsonText(Json(DoctorReport{report.exit_code, report.text, ""}));
}

// The library reports errors as exceptions, which are converted here.
template <typename Value>
absl::StatusOr<Value> Parse(const std::string& words) {
  try {
    return Json::parse(words).get<Value>();
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError(
        "a message of another node cannot be read; install the same ddprun on all nodes");
  }
}

template absl::StatusOr<NodeFacts> Parse<NodeFacts>(const std::string&);
template absl::StatusOr<std::vector<PairFacts>> Parse<std::vector<PairFacts>>(const std::string&);
template absl::StatusOr<DoctorReport> Parse<DoctorReport>(const std::string&);

absl::StatusOr<std::unique_ptr<DoctorExchange>> DoctorExchange::Open(
    const Options& options, const NodeFacts& facts, const NodeId& node_id,
    const OnWaiting& on_waiting, RendezvousEndpoint rendezvous,
    std::optional<TlsCredentials> credentials) {
  std::unique_ptr<DoctorExchange> exchange(new DoctorExchange(std::move(rendezvous)));
  exchange->Join(options, facts, node_id, std::move(credentials));
  absl::Status status = exchange->AwaitStart(options.doctor->timeout, on_waiting);
  if (!status.ok()) return status;
  exchange->OpenStore(node_id);
  return exchange;
}

DoctorExchange::~DoctorExchange() {
  if (store_ != nullptr) {
    store_->Cancel();
    session_->Send(NodeSucceeded{start_.round});
    std::unique_lock<std::mutex> lock(mutex_);
    // Cancel() ends the stream without its peer, and what it calls must not outlive this object.
    changed_.wait(lock,
                  [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return store_ended_.has_value(); });
    changed_.wait_for(lock, kDoctorLeaveTimeout,
                      [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ended_.has_value(); });
  }
  session_.reset();
  channel_.reset();
  if (rendezvous_.server != nullptr) rendezvous_.server->WaitUntilDrained(kFinishTimeout);
}

void DoctorExchange::Take(SessionEvent event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto* connecting = std::get_if<Connecting>(&event)) {
    reason_ = absl::StrCat("node 0 is not reached at ", rendezvous_.name, ": ", connecting->reason);
  } else if (auto* ended = std::get_if<SessionEnded>(&event)) {
    if (!ended_.has_value()) ended_ = std::move(ended->status);
  } else if (auto* directive = std::get_if<Directive>(&event)) {
    if (auto* start = std::get_if<Start>(directive)) {
      started_ = std::move(*start);
    } else if (const auto* waiting = std::get_if<Waiting>(directive)) {
      reason_ = waiting->reason;
    } else if (const auto* refused = std::get_if<Refused>(directive)) {
      ended_ = refused->status;
    } else if (const auto* stop = std::get_if<Stop>(directive)) {
      ended_ = absl::AbortedError(ToSentence(stop->cause));
    } else if (const auto* finish = std::get_if<Finish>(directive)) {
      ended_ = finish->verdict.success || !finish->verdict.cause.has_value()
                   ? absl::OkStatus()
                   : absl::AbortedError(ToSentence(*finish->verdict.cause));
    }
  }
  changed_.notify_all();
}

std::string DoctorRunId(const Options& options) {
  return options.run_id.empty() ? "doctor" : absl::StrCat("doctor-", options.run_id);
}

void DoctorExchange::Join(const Options& options, const NodeFacts& facts, const NodeId& node_id,
                          std::optional<TlsCredentials> credentials) {
  const milliseconds timeout = options.doctor->timeout;
  ddprun::Join join;
  join.protocol_version = kProtocolVersion;
  join.software_version = kSoftwareVersion;
  join.run_id = DoctorRunId(options);
  join.node_id = node_id;
  join.host = facts.host;
  join.node_rank = options.node_rank;
  join.nodes_min = 1;  // the checkup reports missing nodes itself
  join.nodes_max = options.nodes;
  join.hosts_service = rendezvous_.server != nullptr;
  join.address = facts.address;
  join.worker_port = facts.probe_port;
  join.join_timeout = timeout + kJoinSlack;
  join.last_call = timeout;
  join.lease = milliseconds(0);  // a node whose stream ends is lost: it has no state to resume
  SessionClient::Handler handler = [this](SessionEvent event) { Take(std::move(event)); };
  if (rendezvous_.server != nullptr) {
    session_ = rendezvous_.server->OpenSession(join, std::move(handler));
  } else {
    channel_ = MakeServiceChannel(rendezvous_.target, std::move(credentials), rendezvous_.host);
    session_ = SessionClient::Open(channel_, std::move(join), timeout, std::move(handler));
  }
}

absl::Status DoctorExchange::AwaitStart(milliseconds timeout, const OnWaiting& on_waiting) {
  const auto begin = std::chrono::steady_clock::now();
  const auto is_decided = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return started_.has_value() || ended_.has_value();
  };
  std::unique_lock<std::mutex> lock(mutex_);
  if (!changed_.wait_until(lock, begin + kNoticeDelay, is_decided)) {
    const std::string reason = reason_;
    lock.unlock();
    on_waiting(reason);
    lock.lock();
    // One timeout for the service, and one for the other nodes.
    changed_.wait_until(lock, begin + 2 * timeout + kJoinSlack, is_decided);
  }
  if (started_.has_value()) {
    start_ = *started_;
    return absl::OkStatus();
  }
  if (ended_.has_value())
    return ended_->ok() ? absl::UnavailableError("the rendezvous service has ended") : *ended_;
  return absl::DeadlineExceededError(
      reason_.empty() ? absl::StrCat("the service at ", rendezvous_.name, " does not answer")
                      : reason_);
}

// ---- The store

void DoctorExchange::OpenStore(const NodeId& node_id) {
  const std::shared_ptr<StoreConnector> connector = rendezvous_.server != nullptr
                                                        ? rendezvous_.server->store_connector()
                                                        : MakeStoreConnector(channel_);
  StoreHello hello;
  hello.run_id = start_.run_id;
  hello.node_id = node_id.value;
  hello.stream = 1;
  store_ =
      connector->Open(std::move(hello), {[this](StoreBatch* batch) { return TakeRequest(batch); },
                                         [this](std::vector<StoreReply> replies) {
                                           TakeReplies(std::move(replies));
                                           return true;
                                         },
                                         [this](const absl::Status& status) {
                                           const std::lock_guard<std::mutex> lock(mutex_);
                                           store_ended_ = status;
                                           changed_.notify_all();
                                         }});
  store_->Begin();
}

bool DoctorExchange::TakeRequest(StoreBatch* batch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!request_.has_value()) return false;
  *batch = {.requests = {{request_id_, std::exchange(request_, std::nullopt)}},
            .answered = std::exchange(answered_, {})};
  return true;
}

void DoctorExchange::TakeReplies(std::vector<StoreReply> replies) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (StoreReply& reply : replies) {
    answered_.push_back(reply.id);
    if (reply.id == request_id_) result_ = std::move(reply.result);  // else it came too late
  }
  changed_.notify_all();
}

StoreResult DoctorExchange::Call(StoreOp op) {
  const milliseconds patience = op.timeout + kDoctorStepTimeout;
  op.round = start_.round;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++request_id_;
    request_ = std::move(op);
    result_.reset();
  }
  store_->Flush();
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, patience, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return result_.has_value() || store_ended_.has_value();
  });
  if (result_.has_value()) return *std::move(result_);
  if (!store_ended_.has_value())
    return ErrorResult(absl::DeadlineExceededError("the rendezvous service does not answer"));
  return ErrorResult(store_ended_->ok() ? absl::UnavailableError("the rendezvous service has ended")
                                        : *store_ended_);
}

absl::Status DoctorExchange::Set(const std::string& key, const std::string& value) {
  return Call({.verb = StoreVerb::kSet, .keys = {key}, .values = {value}}).status;
}

void DoctorExchange::Meet(const std::string& name, milliseconds timeout) {
  StoreOp op{.verb = StoreVerb::kAdd, .keys = {name}, .values = {}, .number = 1};
  Call(op);
  op.verb = StoreVerb::kWaitCount;
  op.number = count();
  op.timeout = timeout;
  Call(op);
}

}  // namespace ddprun
