// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_exchange.h"

#include <poll.h>

#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "launcher/base/limits.h"
#include "proto/json_text.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
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

// Calls of the store, one at a time. Shared with the link, which may end after the exchange.
class DoctorExchange::StoreCalls : public std::enable_shared_from_this<StoreCalls> {
 public:
  void Begin(StoreConnector& connector, const Start& start, const NodeId& node_id) {
    round_ = start.round;
    StoreHello hello;
    hello.run_id = start.run_id;
    hello.node_id = node_id.value;
    hello.stream = 1;
    link_ = connector.Open(
        std::move(hello),
        {[self = shared_from_this()](StoreBatch* batch) { return self->TakeRequest(batch); },
         [self = shared_from_this()](std::vector<StoreReply> replies) {
           self->TakeReplies(std::move(replies));
           return true;
         },
         [self = shared_from_this()](const absl::Status& status) { self->OnEnd(status); }});
    link_->Begin();
  }

  // Waits for the reply, longer than the operation's own timeout.
  StoreResult Call(StoreOp op) {
    const milliseconds patience = op.timeout + kDoctorStepTimeout;
    op.round = round_;
    {
      absl::MutexLock lock(&mutex_);
      ++request_id_;
      request_ = std::move(op);
      result_.reset();
    }
    link_->Flush();
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(this, &StoreCalls::IsDecided),
                            absl::FromChrono(patience));
    if (result_.has_value()) return *std::move(result_);
    if (!ended_.has_value())
      return ErrorResult(absl::DeadlineExceededError("the rendezvous service does not answer"));
    return ErrorResult(ended_->ok() ? absl::UnavailableError("the rendezvous service has ended")
                                    : *ended_);
  }

  void Cancel() { link_->Cancel(); }

 private:
  bool IsDecided() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return result_.has_value() || ended_.has_value();
  }

  bool TakeRequest(StoreBatch* batch) {
    absl::MutexLock lock(&mutex_);
    if (!request_.has_value()) return false;
    *batch = {.requests = {{request_id_, std::exchange(request_, std::nullopt)}},
              .answered = std::exchange(answered_, {})};
    return true;
  }

  void TakeReplies(std::vector<StoreReply> replies) {
    absl::MutexLock lock(&mutex_);
    for (StoreReply& reply : replies) {
      answered_.push_back(reply.id);
      if (reply.id == request_id_) result_ = std::move(reply.result);  // else it came too late
    }
  }

  void OnEnd(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    ended_ = status;
  }

  // Constant after Begin().
  RoundId round_ = kNoRound;
  std::shared_ptr<StoreLink> link_;

  absl::Mutex mutex_;
  std::uint64_t request_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<StoreOp> request_ ABSL_GUARDED_BY(mutex_);  // until it is sent
  std::optional<StoreResult> result_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> answered_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

DoctorExchange::DoctorExchange(RendezvousEndpoint rendezvous,
                               const std::optional<TlsCredentials>& credentials) {
  session_.UseService(std::move(rendezvous), credentials);
}

absl::StatusOr<std::unique_ptr<DoctorExchange>> DoctorExchange::Open(
    const Options& options, const NodeFacts& facts, const NodeId& node_id,
    const OnWaiting& on_waiting, RendezvousEndpoint rendezvous,
    const std::optional<TlsCredentials>& credentials) {
  std::unique_ptr<DoctorExchange> exchange(new DoctorExchange(std::move(rendezvous), credentials));
  exchange->Join(options, facts, node_id);
  absl::Status status = exchange->AwaitStart(options.doctor->timeout, on_waiting);
  if (!status.ok()) return status;
  NodeSession& session = exchange->session_;
  const std::shared_ptr<StoreConnector> connector =
      session.hosts_service() ? session.service().server->store_connector()
                              : MakeStoreConnector(session.channel());
  exchange->store_ = std::make_shared<StoreCalls>();
  exchange->store_->Begin(*connector, *exchange->started_, node_id);
  return exchange;
}

DoctorExchange::~DoctorExchange() {
  if (store_ != nullptr) {
    store_->Cancel();
    session_.Send(NodeSucceeded{started_->round});
    Await(std::chrono::steady_clock::now() + kDoctorLeaveTimeout,
          [this] { return ended_.has_value(); });
  }
  session_.End();
  session_.CloseService();
}

void DoctorExchange::OnEvent(SessionEvent event) {
  std::visit(Overloaded{[this](const Connecting& connecting) {
                          reason_ = absl::StrCat("node 0 is not reached at ",
                                                 session_.service().name, ": ", connecting.reason);
                        },
                        // A node whose stream ends is lost: its lease is 0.
                        [](const Reconnecting&) {}, [](const Reconnected&) {},
                        [this](Directive& directive) { OnDirective(std::move(directive)); },
                        [this](SessionEnded& end) {
                          if (!ended_.has_value()) ended_ = std::move(end.status);
                        }},
             event);
}

void DoctorExchange::OnDirective(Directive directive) {
  std::visit(
      Overloaded{[this](Start& start) {
                   if (!started_.has_value()) started_ = std::move(start);
                 },
                 [this](Waiting& waiting) { reason_ = std::move(waiting.reason); },
                 [this](Refused& refused) { ended_ = std::move(refused.status); },
                 [this](const Stop& stop) { ended_ = absl::AbortedError(ToSentence(stop.cause)); },
                 [this](const Finish& finish) {
                   const Verdict& verdict = finish.verdict;
                   ended_ = verdict.success || !verdict.cause.has_value()
                                ? absl::OkStatus()
                                : absl::AbortedError(ToSentence(*verdict.cause));
                 },
                 // For nodes with workers.
                 [](const Accepted&) {}, [](const StandBy&) {}, [](const LogWatches&) {},
                 [](const LogsTaken&) {}, [](const Fault&) {}, [](const Preemption&) {},
                 [](const OwnerQueries&) {}, [](const OwnerAnswers&) {},
                 [](const ConnectionRefused&) {}},
      directive);
}

std::string DoctorRunId(const Options& options) {
  return options.run_id.empty() ? "doctor" : absl::StrCat("doctor-", options.run_id);
}

void DoctorExchange::Join(const Options& options, const NodeFacts& facts, const NodeId& node_id) {
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
  join.hosts_service = session_.hosts_service();
  join.address = facts.address;
  join.worker_port = facts.probe_port;
  join.join_timeout = timeout + kJoinSlack;
  join.last_call = timeout;
  join.lease = milliseconds(0);  // a node whose stream ends is lost: it has no state to resume
  session_.Begin(std::move(join), timeout);
}

void DoctorExchange::Await(TimePoint deadline, const std::function<bool()>& done) {
  while (!done()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    pollfd polled{.fd = session_.fd(), .events = POLLIN, .revents = 0};
    poll(&polled, 1, static_cast<int>(left.count()));
    for (SessionEvent& event : session_.TakeEvents(std::chrono::steady_clock::now()))
      OnEvent(std::move(event));
  }
}

absl::Status DoctorExchange::AwaitStart(milliseconds timeout, const OnWaiting& on_waiting) {
  const auto begin = std::chrono::steady_clock::now();
  const auto is_decided = [this] { return started_.has_value() || ended_.has_value(); };
  Await(begin + kNoticeDelay, is_decided);
  if (!is_decided()) {
    on_waiting(reason_);
    // One timeout for the service, and one for the other nodes.
    Await(begin + 2 * timeout + kJoinSlack, is_decided);
  }
  if (started_.has_value()) return absl::OkStatus();
  if (ended_.has_value())
    return ended_->ok() ? absl::UnavailableError("the rendezvous service has ended") : *ended_;
  return absl::DeadlineExceededError(
      reason_.empty() ? absl::StrCat("the service at ", session_.service().name, " does not answer")
                      : reason_);
}

// ---- The store

StoreResult DoctorExchange::Call(StoreOp op) { return store_->Call(std::move(op)); }

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
