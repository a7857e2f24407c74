// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_proxy.h"

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "rendezvous/addresses.h"
#include "rendezvous/grpc_channel.h"
#include "rendezvous/limits.h"
#include "rendezvous/listener.h"
#include "rendezvous/store_stream.h"
#include "rendezvous/store_upstream.h"

namespace ddprun {
namespace {

v1::StoreReply ErrorReply(std::uint64_t id, absl::StatusCode code, const std::string& message) {
  v1::StoreReply reply;
  reply.set_id(id);
  reply.set_code(static_cast<int>(code));
  reply.set_message(message);
  return reply;
}

v1::StoreRequest CancelRequest(std::uint64_t id) {
  v1::StoreRequest request;
  request.set_id(id);
  request.mutable_cancel()->set_id(id);
  return request;
}

// Which operation came from which worker. Operations travel under numbers of the proxy's own, since
// every worker counts from 1. As in Run, messages are queued under the lock, in the order of the
// decisions, and written after it.
class Switchboard final : public std::enable_shared_from_this<Switchboard> {
 public:
  explicit Switchboard(StoreProxy::Options options) : options_(std::move(options)) {}

  void Forward(const std::shared_ptr<StoreStream>& worker, v1::StoreRequest& request) {
    std::shared_ptr<StoreUpstream> upstream;
    {
      absl::MutexLock lock(&mutex_);
      auto& of_worker = waiting_[worker.get()];
      if (request.op().round() != ToNumber(round_)) {
        worker->PushReply(
            ErrorReply(request.id(), absl::StatusCode::kAborted, RoundOver(request.op().round())));
      } else if (request.id() == 0 || of_worker.contains(request.id())) {
        worker->PushReply(ErrorReply(request.id(), absl::StatusCode::kInvalidArgument,
                                     "the id of a store request is 0 or not answered yet"));
      } else if (of_worker.size() >= kStreamOpsMax) {
        worker->PushReply(ErrorReply(request.id(), absl::StatusCode::kResourceExhausted,
                                     absl::StrCat("the worker has ", of_worker.size(),
                                                  " unanswered store operations, its limit")));
      } else if (!closed_) {
        const std::uint64_t id = ++last_id_;
        of_worker.emplace(request.id(), id);
        pending_.emplace(id, Pending{worker, request.id(), request.op().round()});
        request.set_id(id);
        upstream = UpstreamLocked();
        upstream->Push(std::move(request));
      }
    }
    if (upstream != nullptr) {
      upstream->Flush();
    } else {
      worker->FlushReplies();
    }
  }

  void Cancel(const StoreStream* worker, std::uint64_t worker_id) {
    std::shared_ptr<StoreUpstream> upstream;
    {
      absl::MutexLock lock(&mutex_);
      const auto of_worker = waiting_.find(worker);
      if (of_worker == waiting_.end()) return;
      const auto it = of_worker->second.find(worker_id);
      if (it == of_worker->second.end()) return;
      CancelUpstreamLocked(it->second);
      pending_.erase(it->second);
      of_worker->second.erase(it);
      upstream = upstream_;
    }
    if (upstream != nullptr) upstream->Flush();
  }

  void WorkerGone(const StoreStream* worker) {
    std::shared_ptr<StoreUpstream> upstream;
    {
      absl::MutexLock lock(&mutex_);
      const auto of_worker = waiting_.find(worker);
      if (of_worker == waiting_.end()) return;
      for (const auto& entry : of_worker->second) {
        CancelUpstreamLocked(entry.second);
        pending_.erase(entry.second);
      }
      waiting_.erase(of_worker);
      upstream = upstream_;
    }
    if (upstream != nullptr) upstream->Flush();
  }

  void SetRound(RoundId round) {
    std::shared_ptr<StoreUpstream> upstream;
    std::vector<std::shared_ptr<StoreStream>> told;
    {
      absl::MutexLock lock(&mutex_);
      round_ = round;
      std::vector<std::uint64_t> over;
      for (const auto& [id, pending] : pending_) {
        if (pending.round != ToNumber(round)) over.push_back(id);
      }
      for (const std::uint64_t id : over) {
        const std::string message = RoundOver(pending_.at(id).round);
        CancelUpstreamLocked(id);
        told.push_back(AnswerLocked(id, ErrorReply(0, absl::StatusCode::kAborted, message)));
      }
      upstream = upstream_;
    }
    for (const auto& worker : told) worker->FlushReplies();
    if (upstream != nullptr) upstream->Flush();
  }

  // Returns when the upstream has ended, or will at least not call back with anything that matters.
  void Close() {
    std::shared_ptr<StoreUpstream> upstream;
    {
      absl::MutexLock lock(&mutex_);
      closed_ = true;
      upstream = upstream_;
    }
    if (upstream == nullptr) return;
    upstream->Cancel();
    upstream_ended_.WaitForNotificationWithTimeout(absl::FromChrono(kCloseTimeout));
  }

 private:
  struct Pending {
    std::shared_ptr<StoreStream> worker;
    std::uint64_t worker_id = 0;
    std::uint64_t round = 0;
  };

  std::string RoundOver(std::uint64_t round) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::StrCat("the store operation belongs to round ", round,
                        ", but the node is in round ", ToNumber(round_));
  }

  // Opened with the first operation: a program that never asks costs nothing. Opened again after it
  // broke.
  std::shared_ptr<StoreUpstream> UpstreamLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (upstream_ != nullptr) return upstream_;
    std::shared_ptr<Switchboard> self = shared_from_this();
    upstream_ = StoreUpstream::Open(
        options_.channel->channel(), {.run_id = options_.run_id, .node_id = options_.node_id.value},
        [self](v1::StoreReply reply) { self->Answered(std::move(reply)); },
        [self](const StoreUpstream* stream, const grpc::Status& status) {
          self->UpstreamEnded(stream, status);
        });
    return upstream_;
  }

  void CancelUpstreamLocked(std::uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (upstream_ != nullptr) upstream_->Push(CancelRequest(id));
  }

  std::shared_ptr<StoreStream> AnswerLocked(std::uint64_t id, v1::StoreReply reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = pending_.find(id);
    if (it == pending_.end()) return nullptr;
    std::shared_ptr<StoreStream> worker = std::move(it->second.worker);
    reply.set_id(it->second.worker_id);
    waiting_.at(worker.get()).erase(it->second.worker_id);
    pending_.erase(it);
    worker->PushReply(std::move(reply));
    return worker;
  }

  void Answered(v1::StoreReply reply) {
    std::shared_ptr<StoreStream> worker;
    {
      absl::MutexLock lock(&mutex_);
      const std::uint64_t id = reply.id();
      worker = AnswerLocked(id, std::move(reply));
    }
    if (worker != nullptr) worker->FlushReplies();
  }

  void UpstreamEnded(const StoreUpstream* stream, const grpc::Status& status) {
    std::vector<std::shared_ptr<StoreStream>> told;
    {
      absl::MutexLock lock(&mutex_);
      if (upstream_.get() != stream) return;
      upstream_.reset();
      const std::string message =
          absl::StrCat("the node's connection to the rendezvous service's store ended: ",
                       ReasonInWords(status, options_.channel->target()));
      std::vector<std::uint64_t> ids;
      for (const auto& entry : pending_) ids.push_back(entry.first);
      for (const std::uint64_t id : ids) {
        told.push_back(AnswerLocked(id, ErrorReply(0, absl::StatusCode::kUnavailable, message)));
      }
      if (closed_) upstream_ended_.Notify();
    }
    for (const auto& worker : told) worker->FlushReplies();
  }

  const StoreProxy::Options options_;

  absl::Mutex mutex_;
  RoundId round_ ABSL_GUARDED_BY(mutex_) = kNoRound;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<StoreUpstream> upstream_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::uint64_t, Pending> pending_
      ABSL_GUARDED_BY(mutex_);  // by the proxy's number
  absl::flat_hash_map<const StoreStream*, absl::flat_hash_map<std::uint64_t, std::uint64_t>>
      waiting_ ABSL_GUARDED_BY(mutex_);
  absl::Notification upstream_ended_;
};

class WorkerStream final : public StoreStream {
 public:
  explicit WorkerStream(std::shared_ptr<Switchboard> switchboard)
      : switchboard_(std::move(switchboard)) {}

 private:
  void OnRequest(v1::StoreRequest& request) override {
    switch (request.kind_case()) {
      case v1::StoreRequest::kHello:  // what run and node it is, the agent knows itself
        return;
      case v1::StoreRequest::kOp:
        switchboard_->Forward(shared_from_this(), request);
        return;
      case v1::StoreRequest::kCancel:
        switchboard_->Cancel(this, request.cancel().id());
        return;
      case v1::StoreRequest::KIND_NOT_SET:
        EndWith({grpc::StatusCode::INVALID_ARGUMENT,
                 "a store request of a kind that this version does not know"});
        return;
    }
  }

  void OnPeerGone() override { switchboard_->WorkerGone(this); }

  const std::shared_ptr<Switchboard> switchboard_;
};

class StoreProxyImpl final : public StoreProxy, private v1::Store::CallbackService {
 public:
  explicit StoreProxyImpl(Options options)
      : switchboard_(std::make_shared<Switchboard>(std::move(options))) {}

  ~StoreProxyImpl() override {
    listener_.reset();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    switchboard_->Close();
  }

  bool Serve(ListeningSocket socket) {
    grpc::ServerBuilder builder;
    SetServerArguments(builder);
    builder.RegisterService(this);
    acceptor_ = AddAcceptor(builder, std::nullopt);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return false;
    listener_ = std::make_unique<Listener>(std::move(socket),
                                           Listener::Options{.peers = Listener::Peers::kSameUser},
                                           HandOverTo(*acceptor_));
    return true;
  }

  void SetRound(RoundId round) override { switchboard_->SetRound(round); }

 private:
  grpc::ServerBidiReactor<v1::StoreRequest, v1::StoreReply>* Exchange(
      grpc::CallbackServerContext*) override {
    auto stream = std::make_shared<WorkerStream>(switchboard_);
    stream->Begin();
    return stream.get();
  }

  const std::shared_ptr<Switchboard> switchboard_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Listener> listener_;  // last: it uses the acceptor
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreProxy>> StoreProxy::Start(Options options) {
  PrepareGrpc();
  auto socket = ListenOnPath(options.socket_path);
  if (!socket.ok()) return socket.status();
  auto proxy = std::make_unique<StoreProxyImpl>(std::move(options));
  if (!proxy->Serve(*std::move(socket))) {
    return absl::InternalError("gRPC cannot start the node's store; see GRPC_VERBOSITY=debug");
  }
  return proxy;
}

}  // namespace ddprun
