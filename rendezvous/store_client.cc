// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_client.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "rendezvous/convert.h"
#include "rendezvous/grpc_channel.h"
#include "rendezvous/limits.h"
#include "rendezvous/store_upstream.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// The calls that wait for answers, apart from the client so that the stream can outlive it.
class Calls {
 public:
  struct Call {
    absl::Notification answered;
    StoreResult result;
  };

  // UNAVAILABLE, with the reason, if the stream has ended.
  absl::Status Add(std::uint64_t* id, Call* call) {
    absl::MutexLock lock(&mutex_);
    if (!end_.ok()) return end_;
    *id = ++last_id_;
    waiting_.emplace(*id, call);
    return absl::OkStatus();
  }

  // False if the answer has come.
  bool Remove(std::uint64_t id) {
    absl::MutexLock lock(&mutex_);
    return waiting_.erase(id) > 0;
  }

  void Answer(v1::StoreReply reply) {
    absl::MutexLock lock(&mutex_);
    const auto it = waiting_.find(reply.id());
    if (it == waiting_.end()) return;
    it->second->result = FromProto(std::move(reply));
    it->second->answered.Notify();
    waiting_.erase(it);
  }

  void End(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    end_ = std::move(status);
    for (const auto& entry : waiting_) {
      entry.second->result.status = end_;
      entry.second->answered.Notify();
    }
    waiting_.clear();
    ended_.Notify();
  }

  void WaitUntilEnded() { ended_.WaitForNotificationWithTimeout(absl::FromChrono(kCloseTimeout)); }

 private:
  absl::Mutex mutex_;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::uint64_t, Call*> waiting_
      ABSL_GUARDED_BY(mutex_);  // on their callers' stacks
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  absl::Notification ended_;
};

class StoreClientImpl final : public StoreClient {
 public:
  StoreClientImpl(Options options, std::shared_ptr<grpc::Channel> channel)
      : options_(std::move(options)),
        channel_(std::move(channel)),
        calls_(std::make_shared<Calls>()) {
    upstream_ = StoreUpstream::Open(
        channel_, {.run_id = options_.run_id, .node_id = options_.node_id},
        [calls = calls_](v1::StoreReply reply) { calls->Answer(std::move(reply)); },
        [calls = calls_, target = options_.target](const StoreUpstream*,
                                                   const grpc::Status& status) {
          calls->End(absl::UnavailableError(absl::StrCat(
              "the connection to the store at ", target,
              " is gone: ", status.ok() ? "it was closed" : ReasonInWords(status, target))));
        });
  }

  ~StoreClientImpl() override {
    upstream_->Cancel();
    calls_->WaitUntilEnded();
  }

  StoreResult Call(StoreOp op) override {
    const milliseconds timeout =
        std::clamp<milliseconds>(op.timeout, milliseconds{0}, milliseconds(kStoreTimeoutMax));
    op.round = options_.round;
    Calls::Call call;
    std::uint64_t id = 0;
    if (absl::Status status = calls_->Add(&id, &call); !status.ok()) {
      call.result.status = std::move(status);
      return std::move(call.result);
    }
    v1::StoreRequest request;
    request.set_id(id);
    *request.mutable_op() = ToProto(std::move(op));
    upstream_->Push(std::move(request));
    upstream_->Flush();
    // A server that hangs must not hang the caller too.
    const auto patience = absl::FromChrono(timeout + milliseconds(kStoreAnswerSlack));
    if (!call.answered.WaitForNotificationWithTimeout(patience) && calls_->Remove(id)) {
      request.Clear();
      request.set_id(id);
      request.mutable_cancel()->set_id(id);
      upstream_->Push(std::move(request));
      upstream_->Flush();
      call.result.status = absl::DeadlineExceededError(
          absl::StrCat("the store at ", options_.target, " did not answer within ",
                       absl::FormatDuration(patience)));
      return std::move(call.result);
    }
    call.answered.WaitForNotification();
    return std::move(call.result);
  }

  RoundId round() const override { return options_.round; }

 private:
  const Options options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::shared_ptr<Calls> calls_;
  std::shared_ptr<StoreUpstream> upstream_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<StoreClient>> StoreClient::Connect(Options options) {
  auto channel = MakeChannel(options.target);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + options.connect_timeout)) {
    return absl::UnavailableError(
        absl::StrCat("nothing answers at the store's address ", options.target, " within ",
                     std::chrono::duration<double>(options.connect_timeout).count(),
                     " s; check that its agent or service runs"));
  }
  return std::make_shared<StoreClientImpl>(std::move(options), std::move(channel));
}

}  // namespace ddprun
