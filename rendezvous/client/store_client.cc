// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/store_client.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/client/agent_store_client.h"
#include "rendezvous/proxy/store_upstream.h"
#include "rendezvous/wire/grpc_channel.h"

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

  void Send(StoreRequest request) {
    absl::MutexLock lock(&mutex_);
    unsent_.push_back(std::move(request));
  }

  bool TakeBatch(StoreBatch* batch) {
    absl::MutexLock lock(&mutex_);
    std::size_t bytes = 0;
    while (!unsent_.empty() && bytes < kStoreBatchBytes &&
           batch->requests.size() < kStoreBatchOps) {
      if (const auto& op = unsent_.front().op) {
        for (const std::string& key : op->keys) bytes += key.size();
        for (const std::string& value : op->values) bytes += value.size();
      }
      batch->requests.push_back(std::move(unsent_.front()));
      unsent_.pop_front();
    }
    return !batch->requests.empty();
  }

  void Answer(std::vector<StoreReply> replies) {
    absl::MutexLock lock(&mutex_);
    for (StoreReply& reply : replies) {
      const auto it = waiting_.find(reply.id);
      if (it == waiting_.end()) continue;
      it->second->result = std::move(reply.result);
      it->second->answered.Notify();
      waiting_.erase(it);
    }
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
  std::deque<StoreRequest> unsent_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  absl::Notification ended_;
};

class ServiceStoreClient final : public StoreClient {
 public:
  ServiceStoreClient(Options options, std::shared_ptr<grpc::Channel> channel)
      : options_(std::move(options)),
        channel_(std::move(channel)),
        calls_(std::make_shared<Calls>()) {
    StoreHello hello;
    hello.run_id = options_.run_id;
    hello.node_id = options_.node_id;
    upstream_ = std::make_shared<StoreUpstream>(
        channel_, options_.target, std::move(hello),
        StoreLink::Handlers{[calls = calls_](StoreBatch* batch) { return calls->TakeBatch(batch); },
                            [calls = calls_](std::vector<StoreReply> replies) {
                              calls->Answer(std::move(replies));
                            },
                            [calls = calls_, target = options_.target](const absl::Status& status) {
                              calls->End(absl::UnavailableError(absl::StrCat(
                                  "the connection to the store at ", target,
                                  " is gone: ", status.ok() ? "it was closed" : status.message())));
                            }});
    upstream_->Begin();
  }

  ~ServiceStoreClient() override {
    upstream_->Cancel();
    calls_->WaitUntilEnded();
  }

  StoreResult Call(const StoreOp& asked) override {
    StoreOp op = asked;
    const milliseconds timeout =
        std::clamp<milliseconds>(op.timeout, milliseconds{0}, milliseconds(kStoreTimeoutMax));
    op.round = options_.round;
    Calls::Call call;
    std::uint64_t id = 0;
    if (absl::Status status = calls_->Add(&id, &call); !status.ok()) {
      call.result.status = std::move(status);
      return std::move(call.result);
    }
    calls_->Send({id, std::move(op)});
    upstream_->Flush();
    // A server that hangs must not hang the caller too.
    const auto patience = absl::FromChrono(timeout + milliseconds(kStoreAnswerSlack));
    if (!call.answered.WaitForNotificationWithTimeout(patience) && calls_->Remove(id)) {
      calls_->Send({id, std::nullopt});
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
  if (absl::StartsWith(options.target, "unix:")) return ConnectToAgent(std::move(options));
  auto channel = MakeChannel(options.target);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + options.connect_timeout)) {
    return NobodyAnswers(options);
  }
  return std::make_shared<ServiceStoreClient>(std::move(options), std::move(channel));
}

}  // namespace ddprun
