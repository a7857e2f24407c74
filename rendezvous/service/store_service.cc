// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/store_service.h"

#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "proto/limits/limited_messages.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/streams/batch_writer.h"
#include "rendezvous/streams/first_message_timer.h"
#include "rendezvous/streams/server_stream.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/store_convert.h"

namespace ddprun {
namespace {

using Stream = ServerStream<v1::StoreRequests, v1::StoreReplies>;

// One stream. Its run holds it too. It is not read while its peer does not read its replies.
class ServiceStoreStream final : public Stream,
                                 public ReplySink,
                                 public std::enable_shared_from_this<ServiceStoreStream> {
 public:
  ServiceStoreStream(RunRegistry& registry, PeerGuard& guard, CompletionThreads& threads)
      : Stream(threads),
        registry_(registry),
        guard_(guard),
        out_([this](v1::StoreReplies* message) { return Fill(message); },
             [this](const v1::StoreReplies* message) { StartWrite(message); },
             [this] { Finish(EndStatus()); }) {}

  void Begin() override {
    guard_.Called(context().peer());
    StartSendInitialMetadata();
    first_message_.Begin(shared_from_this(), [](ServiceStoreStream& self) {
      self.End(absl::DeadlineExceededError("the stream's first request did not come in time"));
      self.Flush();
    });
    StartRead(&requests_);
  }

  // ReplySink
  void Push(StoreReply reply) override {
    v1::StoreReply message = ToProto(std::move(reply));
    absl::MutexLock lock(&mutex_);
    queued_bytes_ += message.ByteSizeLong();
    queue_.push_back(std::move(message));
  }
  void End(absl::Status status) override {
    {
      absl::MutexLock lock(&mutex_);
      end_status_ = ToGrpc(status);
    }
    out_.Close();
  }
  void Flush() override { out_.Flush(); }

  // Stream. Reads come one after another; writes and reads at the same time.
  void OnReadDone(bool ok) override {
    const bool in_time = first_message_.Came();
    if (!ok) {
      if (run_ != nullptr) run_->StoreGone(peer_);
      if (const std::optional<absl::Status> refusal = TakeSizeRefusal()) {
        End(*refusal);
      } else {
        out_.Abandon();
      }
      out_.Flush();
      return;
    }
    if (in_time) OnRequests();
    requests_.Clear();
    {
      absl::MutexLock lock(&mutex_);
      if (queued_bytes_ > kStreamReplyBytesMax) {
        reading_paused_ = true;
        return;
      }
    }
    StartRead(&requests_);
  }

  void OnWriteDone(bool ok) override {
    out_.OnWriteDone(ok);
    {
      absl::MutexLock lock(&mutex_);
      if (!reading_paused_ || (ok && queued_bytes_ > kStreamReplyBytesMax / 2)) return;
      reading_paused_ = false;
    }
    StartRead(&requests_);
  }

 private:
  void OnRequests() {
    if (const int count = requests_.requests_size(); count > static_cast<int>(kStoreBatchOps)) {
      End(absl::ResourceExhaustedError(absl::StrCat("a message of the store has ", count,
                                                    " operations; at most ", kStoreBatchOps,
                                                    " are allowed")));
      Flush();
      return;
    }
    if (run_ == nullptr) {
      const absl::Status greeted = Greet();
      if (!greeted.ok()) {
        End(greeted);
        Flush();
        return;
      }
    }
    std::vector<StoreReply> refused;
    StoreBatch batch = FromProto(std::move(requests_), &refused);
    for (StoreReply& reply : refused) Push(std::move(reply));
    run_->Receive(peer_, std::move(batch), std::chrono::steady_clock::now());
    if (!refused.empty()) Flush();
  }

  absl::Status Greet() {
    if (!requests_.has_hello()) {
      return absl::InvalidArgumentError("the first message of a store stream must have its hello");
    }
    const v1::StoreHello& hello = requests_.hello();
    if (hello.protocol_version() != kProtocolVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat("the store's client speaks protocol ", hello.protocol_version(),
                       ", the service speaks protocol ", kProtocolVersion,
                       "; install the same ddprun on all nodes"));
    }
    if (absl::Status status = guard_.CheckNode(context(), hello.run_id(), hello.node_id());
        !status.ok()) {
      return status;
    }
    std::shared_ptr<Run> run = registry_.Find(hello.run_id());
    if (run == nullptr) return UnknownRun(Printable(hello.run_id().substr(0, kNameBytesMax)));
    auto peer = run->OpenStore(shared_from_this(), FromProto(hello));
    if (!peer.ok()) return peer.status();
    peer_ = *peer;
    run_ = std::move(run);
    return absl::OkStatus();
  }

  bool Fill(v1::StoreReplies* message) {
    absl::MutexLock lock(&mutex_);
    std::size_t bytes = 0;
    while (!queue_.empty() && bytes < kStoreBatchBytes) {
      bytes += queue_.front().ByteSizeLong();
      *message->add_replies() = std::move(queue_.front());
      queue_.pop_front();
    }
    queued_bytes_ -= bytes;
    return bytes > 0;
  }

  grpc::Status EndStatus() {
    absl::MutexLock lock(&mutex_);
    return end_status_;
  }

  RunRegistry& registry_;
  PeerGuard& guard_;
  FirstMessageTimer<ServiceStoreStream> first_message_;
  std::shared_ptr<Run> run_;  // set by the first message, on the reading side only
  StorePeer peer_ = kNoPeer;  // set with it
  v1::StoreRequests requests_;

  absl::Mutex mutex_;
  std::deque<v1::StoreReply> queue_ ABSL_GUARDED_BY(mutex_);
  std::size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool reading_paused_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status end_status_ ABSL_GUARDED_BY(mutex_);
  BatchWriter<v1::StoreReplies> out_;
};

}  // namespace

void StoreService::Serve(CompletionThreads& threads) {
  const auto make = [this, &threads] {
    return std::make_shared<ServiceStoreStream>(registry_, guard_, threads);
  };
  for (const auto& queue : threads.queues()) {
    ServeCalls(*this, &StoreService::RequestExchange, *queue, make);
  }
}

}  // namespace ddprun
