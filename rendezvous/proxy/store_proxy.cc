// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/store_proxy.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/backoff.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/proxy/admissions.h"
#include "rendezvous/proxy/channel_connector.h"
#include "rendezvous/proxy/tcp_peer.h"
#include "rendezvous/proxy/worker_socket.h"
#include "rendezvous/store/store_coalescer.h"
#include "rendezvous/tcpstore/session.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// Between two notices about clients: a stranger may connect again and again.
constexpr std::chrono::seconds kClientNoticeInterval{10};

TimePoint Now() { return std::chrono::steady_clock::now(); }

StoreCoalescer::Answer ErrorTo(StoreWorker worker, std::uint64_t id, absl::Status status) {
  StoreCoalescer::Answer answer;
  answer.result.status = std::move(status);
  answer.to.emplace_back(worker, id);
  return answer;
}

// Whether a new stream may succeed.
bool MayPass(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
      return false;
    default:
      return true;
  }
}

// The coalescer with a lock, between the workers' socket and the stream to the service. Replies are
// sent after the lock is released; their order does not matter. Messages to the service are taken
// from the coalescer, in order, when they can be sent.
class ProxyCore final : public std::enable_shared_from_this<ProxyCore> {
 public:
  explicit ProxyCore(StoreProxy::Options options)
      : options_(std::move(options)),
        connector_(options_.connector != nullptr ? options_.connector
                                                 : MakeStoreConnector(options_.channel)) {}

  absl::Status Listen() {
    const std::shared_ptr<ProxyCore> self = shared_from_this();
    auto socket = std::make_shared<WorkerSocket>(WorkerSocket::Handlers{
        [self](StoreWorker worker, int fd, bool tcp) {
          return self->OnClient(worker, tcp ? std::optional<TcpPeer>(PeerOf(fd)) : std::nullopt);
        },
        [self](StoreWorker worker, std::string_view bytes) { return self->OnBytes(worker, bytes); },
        [self](StoreWorker worker) { self->OnRead(worker); },
        [self](StoreWorker worker) { self->OnWorkerGone(worker); },
        [self] { return self->OnIdle(); }});
    absl::Status status = socket->Listen(options_.socket_path);
    if (!status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    socket_ = std::move(socket);
    return absl::OkStatus();
  }

  absl::Status EnsureListening() {
    std::shared_ptr<WorkerSocket> socket;
    {
      absl::MutexLock lock(&mutex_);
      socket = socket_;
    }
    return socket == nullptr ? absl::OkStatus() : socket->EnsureListening();
  }

  absl::Status ServeTcpStore(ListeningSocket listener) {
    std::shared_ptr<WorkerSocket> socket;
    {
      absl::MutexLock lock(&mutex_);
      socket = socket_;
    }
    return socket == nullptr ? absl::OkStatus() : socket->ServeTcp(std::move(listener));
  }

  void OnOwners(const std::vector<OwnerAnswer>& answers) {
    absl::MutexLock lock(&mutex_);
    for (const OwnerAnswer& answer : answers) {
      if (const auto decision = admissions_.Receive(answer)) PerformLocked(*decision);
    }
  }

  void SetRound(RoundId round) {
    StoreCoalescer::Answers answers;
    std::shared_ptr<StoreLink> upstream;
    {
      absl::MutexLock lock(&mutex_);
      if (round != coalescer_.round()) EndTcpClientsLocked();
      answers = coalescer_.SetRound(round);
      upstream = upstream_;
    }
    Send(answers);
    if (upstream != nullptr) upstream->Flush();
  }

  void ServiceIsBack() {
    std::shared_ptr<WorkerSocket> socket;
    {
      absl::MutexLock lock(&mutex_);
      lost_since_.reset();
      admissions_.AskAgain();
      socket = socket_;
    }
    if (socket != nullptr) socket->Wake();
  }

  void Fail(absl::Status status) {
    StoreCoalescer::Answers answers;
    std::shared_ptr<StoreLink> upstream;
    {
      absl::MutexLock lock(&mutex_);
      failed_ = std::move(status);
      answers = coalescer_.Fail(failed_);
      upstream = std::exchange(upstream_, nullptr);
    }
    Send(answers);
    if (upstream != nullptr) upstream->Cancel();
  }

  void Close() {
    std::shared_ptr<WorkerSocket> socket;
    std::shared_ptr<StoreLink> upstream;
    {
      absl::MutexLock lock(&mutex_);
      closed_ = true;
      socket = std::exchange(socket_, nullptr);
      upstream = upstream_;
      if (upstream == nullptr) upstream_ended_.Notify();
    }
    if (socket != nullptr) socket->Stop();
    if (upstream != nullptr) upstream->Cancel();
    upstream_ended_.WaitForNotificationWithTimeout(absl::FromChrono(kCloseTimeout));
  }

 private:
  // ---- On the socket's thread

  void SubmitLocked(StoreWorker worker, TcpStoreSession::Request request,
                    StoreCoalescer::Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!request.op) {
      coalescer_.Cancel(worker, request.id);
    } else if (!failed_.ok()) {
      answers.push_back(ErrorTo(worker, request.id, failed_));
    } else {
      if (coalescer_.unanswered() == 0) lost_since_.reset();
      for (auto& answer :
           coalescer_.Submit(worker, request.id, *std::move(request.op), Now(), request.alone)) {
        answers.push_back(std::move(answer));
      }
    }
  }

  void OnWorkerGone(StoreWorker worker) {
    absl::MutexLock lock(&mutex_);
    admissions_.Remove(worker);
    clients_.erase(worker);
    coalescer_.WorkerGone(worker);
  }

  struct Client {
    TcpStoreSession session;
    bool ends_with_round = false;
    bool held = false;
  };

  // `peer`: of a TCP connection.
  WorkerSocket::Admission OnClient(StoreWorker worker, const std::optional<TcpPeer>& peer) {
    absl::MutexLock lock(&mutex_);
    if (peer && !peer->on_this_host) return AskOwnerLocked(worker, *peer);
    if (peer && !IsWelcomeLocked(*peer)) return WorkerSocket::Admission::kRefused;
    clients_.emplace(worker, Client{TcpStoreSession(coalescer_.round()), peer.has_value()});
    return WorkerSocket::Admission::kServed;
  }

  // The node that it is on is asked in OnIdle(), when the socket has its stream.
  WorkerSocket::Admission AskOwnerLocked(StoreWorker worker, const TcpPeer& peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (options_.ask_owners == nullptr) return WorkerSocket::Admission::kRefused;
    const auto refused = admissions_.Add(worker, peer.connection, Now());
    if (!refused) return WorkerSocket::Admission::kHeld;
    NoticeLocked(refused->notice);
    return WorkerSocket::Admission::kRefused;
  }

  void PerformLocked(const Admissions::Decision& decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!decision.notice.empty()) NoticeLocked(decision.notice);
    if (socket_ == nullptr) return;
    if (!decision.admitted) return socket_->End(decision.worker);
    clients_.emplace(decision.worker, Client{TcpStoreSession(coalescer_.round()), true});
    socket_->Hold(decision.worker, false);
  }

  // On this host the user decides, whatever the address: other users may be there too.
  bool IsWelcomeLocked(const TcpPeer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::optional<uid_t>& user = peer.owner.user;
    if (user && IsOurs(*user)) return true;
    if (user) {
      NoticeLocked(RefusalOf(peer.connection, absl::StrCat("it is of user ", *user)));
    } else if (!peer.owner.known) {
      NoticeLocked(RefusalOf(peer.connection,
                             "which user of this host it is of cannot be seen, since neither "
                             "sock_diag(7) nor /proc/net/tcp can be read; let ddprun read one of "
                             "them"));
    }
    return false;
  }

  WorkerSocket::Received OnBytes(StoreWorker worker, std::string_view bytes) {
    absl::MutexLock lock(&mutex_);
    const auto client = clients_.find(worker);
    if (client == clients_.end()) return {.open = false};
    TcpStoreSession& session = client->second.session;
    session.Receive(bytes);
    if (!ServeClientLocked(worker, client->second)) return {.open = false};
    return {.greeted = session.greeted(),
            .room = session.room_needed(),
            .missing = session.bytes_missing()};
  }

  void OnRead(StoreWorker worker) {
    absl::MutexLock lock(&mutex_);
    const auto client = clients_.find(worker);
    if (client == clients_.end()) return;
    client->second.session.SetUnread(false);
    ServeClientLocked(worker, client->second);
  }

  // Carries requests and replies between the client's session and the coalescer until there are
  // none. Replies are sent under the lock, since a client relies on their order. False: the session
  // has ended.
  bool ServeClientLocked(StoreWorker worker, Client& client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TcpStoreSession& session = client.session;
    if (socket_ == nullptr) return false;
    while (true) {
      std::vector<TcpStoreSession::Request> requests = session.TakeRequests();
      if (requests.empty()) {
        std::vector<StoreValue> out = session.TakeOutput();
        if (out.empty()) break;
        session.SetUnread(!socket_->Send(worker, std::move(out)));
        continue;
      }
      StoreCoalescer::Answers answers;
      for (TcpStoreSession::Request& request : requests)
        SubmitLocked(worker, std::move(request), answers);
      for (const StoreCoalescer::Answer& answer : answers) {
        for (const auto& [to, id] : answer.to) session.Answer(id, answer.result);
      }
    }
    const absl::Status& status = session.status();
    if (status.ok()) {
      if (client.held == session.wants_input()) {
        client.held = !client.held;
        socket_->Hold(worker, client.held);
      }
      return true;
    }
    // The end of a round and the loss of the service are told elsewhere.
    if (!absl::IsAborted(status) && !absl::IsUnavailable(status))
      NoticeLocked(absl::StrCat("closed a worker's connection to the store: ", status.message()));
    clients_.erase(worker);
    coalescer_.WorkerGone(worker);
    socket_->End(worker);
    return false;
  }

  // Our own workers name the round in each request.
  void EndTcpClientsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const StoreWorker worker : admissions_.TakeAll()) {
      if (socket_ != nullptr) socket_->End(worker);
    }
    absl::erase_if(clients_, [this](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (!entry.second.ends_with_round) return false;
      coalescer_.WorkerGone(entry.first);
      if (socket_ != nullptr) socket_->End(entry.first);
      return true;
    });
  }

  void NoticeLocked(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const TimePoint now = Now();
    if (options_.on_notice == nullptr || (next_notice_ && now < *next_notice_)) return;
    next_notice_ = now + kClientNoticeInterval;
    options_.on_notice(text);
  }

  // Requests that have arrived by now are sent together.
  std::optional<TimePoint> OnIdle() {
    StoreCoalescer::Answers answers;
    std::shared_ptr<StoreLink> upstream;
    bool begin = false;
    bool resume = false;
    std::optional<TimePoint> due;
    std::vector<OwnerQuery> queries;
    {
      absl::MutexLock lock(&mutex_);
      queries = admissions_.TakeQueries();
      for (const auto& decision : admissions_.Tick(Now())) PerformLocked(decision);
      if (upstream_paused_ && (socket_ == nullptr || !socket_->IsFull())) {
        upstream_paused_ = false;
        resume = true;
      }
      if (upstream_ == nullptr && !closed_ && failed_.ok() && coalescer_.HasBatch()) {
        const TimePoint now = Now();
        begin = !lost_since_ || now >= retry_at_;
        if (begin) {
          OpenLocked();
        } else {
          answers = coalescer_.Tick(now);
          due = std::min(retry_at_, coalescer_.NextDeadline().value_or(retry_at_));
        }
      }
      due = Earliest({due, admissions_.NextDeadline()});
      upstream = upstream_;
    }
    if (!queries.empty()) options_.ask_owners(std::move(queries));
    Send(answers);
    if (resume && upstream != nullptr) upstream->Resume();
    if (begin) {
      upstream->Begin();
    } else if (upstream != nullptr) {
      upstream->Flush();
    }
    return due;
  }

  // ---- The stream to the service

  // Called at the first operation: a program that does not use the store costs nothing.
  void OpenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::shared_ptr<ProxyCore> self = shared_from_this();
    const std::uint64_t stream = ++stream_;
    StoreHello hello;
    hello.run_id = options_.run_id;
    hello.node_id = options_.node_id.value;
    hello.stream = stream;
    hello.space = options_.space;
    hello.unanswered = coalescer_.Unanswered();
    StoreLink::Handlers handlers{
        [self, stream](StoreBatch* batch) { return self->TakeBatch(stream, batch); },
        [self, stream](std::vector<StoreReply> replies) {
          return self->OnReplies(stream, std::move(replies));
        },
        [self, stream](const absl::Status& status) { self->OnUpstreamEnd(stream, status); }};
    upstream_ = connector_->Open(std::move(hello), std::move(handlers));
  }

  bool TakeBatch(std::uint64_t stream, StoreBatch* batch) {
    absl::MutexLock lock(&mutex_);
    if (stream != stream_ || upstream_ == nullptr || !coalescer_.HasBatch()) return false;
    *batch = coalescer_.TakeBatch(Now());
    return true;
  }

  // False: the workers are to read first.
  bool OnReplies(std::uint64_t stream, std::vector<StoreReply> replies) {
    StoreCoalescer::Answers answers;
    std::shared_ptr<StoreLink> upstream;
    {
      absl::MutexLock lock(&mutex_);
      if (stream != stream_ || upstream_ == nullptr) return true;
      answers = coalescer_.Receive(std::move(replies));
      lost_since_.reset();
      backoff_.Reset();
      upstream = upstream_;
    }
    Send(answers);
    upstream->Flush();
    absl::MutexLock lock(&mutex_);
    upstream_paused_ = socket_ != nullptr && socket_->IsFull();
    return !upstream_paused_;
  }

  void OnUpstreamEnd(std::uint64_t stream, const absl::Status& status) {
    StoreCoalescer::Answers answers;
    std::shared_ptr<WorkerSocket> socket;
    {
      absl::MutexLock lock(&mutex_);
      if (stream != stream_ || upstream_ == nullptr) return;
      if (closed_) upstream_ended_.Notify();
      upstream_.reset();
      upstream_paused_ = false;
      coalescer_.Lost();
      const TimePoint now = Now();
      if (!lost_since_) lost_since_ = now;
      if (MayPass(status.code()) && now - *lost_since_ < options_.reconnect_timeout) {
        retry_at_ = std::min(now + backoff_.Next(kReconnectBackoffMax),
                             *lost_since_ + options_.reconnect_timeout);
      } else {
        answers = coalescer_.Fail(absl::UnavailableError(
            absl::StrCat("the node's connection to the rendezvous service's store ended: ",
                         status.ok() ? "it was closed" : status.message())));
        lost_since_.reset();
        backoff_.Reset();
      }
      socket = socket_;
    }
    Send(answers);
    if (socket != nullptr) socket->Wake();
  }

  void Send(const StoreCoalescer::Answers& answers) {
    if (answers.empty()) return;
    absl::MutexLock lock(&mutex_);
    for (const StoreCoalescer::Answer& answer : answers) {
      for (const auto& [worker, id] : answer.to) {
        const auto client = clients_.find(worker);
        if (client == clients_.end()) continue;
        client->second.session.Answer(id, answer.result);
        ServeClientLocked(worker, client->second);
      }
    }
  }

  const StoreProxy::Options options_;
  const std::shared_ptr<StoreConnector> connector_;

  absl::Mutex mutex_;
  StoreCoalescer coalescer_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<WorkerSocket> socket_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<StoreWorker, Client> clients_ ABSL_GUARDED_BY(mutex_);
  Admissions admissions_ ABSL_GUARDED_BY(mutex_);
  std::optional<TimePoint> next_notice_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<StoreLink> upstream_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t stream_ ABSL_GUARDED_BY(mutex_) = 0;
  bool upstream_paused_ ABSL_GUARDED_BY(mutex_) = false;  // as the workers do not read
  // Since when the service has not replied, and when to try again.
  std::optional<TimePoint> lost_since_ ABSL_GUARDED_BY(mutex_);
  TimePoint retry_at_ ABSL_GUARDED_BY(mutex_);
  Backoff backoff_ ABSL_GUARDED_BY(mutex_);
  absl::Notification upstream_ended_;
};

class StoreProxyImpl final : public StoreProxy {
 public:
  explicit StoreProxyImpl(Options options)
      : core_(std::make_shared<ProxyCore>(std::move(options))) {}
  ~StoreProxyImpl() override { core_->Close(); }

  absl::Status Listen() { return core_->Listen(); }
  absl::Status ServeTcpStore(ListeningSocket listener) override {
    return core_->ServeTcpStore(std::move(listener));
  }
  void OnOwners(const std::vector<OwnerAnswer>& answers) override { core_->OnOwners(answers); }
  absl::Status EnsureListening() override { return core_->EnsureListening(); }
  void SetRound(RoundId round) override { core_->SetRound(round); }
  void ServiceIsBack() override { core_->ServiceIsBack(); }
  void Fail(absl::Status status) override { core_->Fail(std::move(status)); }

 private:
  const std::shared_ptr<ProxyCore> core_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreProxy>> StoreProxy::Start(Options options) {
  auto proxy = std::make_unique<StoreProxyImpl>(std::move(options));
  if (absl::Status status = proxy->Listen(); !status.ok()) return status;
  return proxy;
}

}  // namespace ddprun
