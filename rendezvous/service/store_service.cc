// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/store_service.h"

#include <algorithm>
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

// One stream. Its run holds it too. Nothing is done for it while its peer does not read its
// replies.
class ServiceStoreStream final : public Stream,
                                 public ReplySink,
                                 public ReplyRoom::Writer,
                                 public std::enable_shared_from_this<ServiceStoreStream> {
 public:
  ServiceStoreStream(RunRegistry& registry, PeerGuard& guard, std::shared_ptr<ReplyRoom> room,
                     CompletionThreads& threads)
      : Stream(threads),
        registry_(registry),
        guard_(guard),
        room_(std::move(room)),
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
    absl::MutexLock lock(&mutex_);
    queued_bytes_ += BytesOf(reply.result);
    queue_.push_back(std::move(reply));
  }
  void End(absl::Status status) override {
    {
      absl::MutexLock lock(&mutex_);
      end_status_ = ToGrpc(status);
    }
    out_.Close();
  }
  void Flush() override { out_.Flush(); }

  // ReplyRoom::Writer
  void TryAgain() override { out_.Flush(); }
  void CutOff() override { context().TryCancel(); }

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
    GoOn();
  }

  void OnWriteDone(bool ok) override {
    room_->Release(this);
    out_.OnWriteDone(ok);
    {
      absl::MutexLock lock(&mutex_);
      if (!ok) broken_ = true;
      if (!paused_ || (ok && queued_bytes_ > kStreamReplyBytesMax / 2)) return;
      paused_ = false;
    }
    GoOn();
  }

 private:
  // Performs what was read, and reads on. Called by one thread at a time: the one that has read, or
  // the one that ends the pause.
  void GoOn() {
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        if (broken_) batch_ = {};
        paused_ = !broken_ && queued_bytes_ > kStreamReplyBytesMax;
        if (paused_) return;
      }
      if (batch_.requests.empty() && batch_.answered.empty()) break;
      run_->Receive(peer_, batch_, std::chrono::steady_clock::now());
    }
    StartRead(&requests_);
  }

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
    batch_ = FromProto(std::move(requests_), &refused);
    for (StoreReply& reply : refused) Push(std::move(reply));
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

  // Without room only what is small is written.
  bool Fill(v1::StoreReplies* message) {
    absl::MutexLock lock(&mutex_);
    if (queue_.empty()) return false;
    const std::size_t first = BytesOf(queue_.front().result);
    std::size_t most = std::max(first, std::min(queued_bytes_, kStoreBatchBytes));
    const bool is_small = first <= kSmallReplyBytes;
    if (most > kSmallReplyBytes && !room_->Take(shared_from_this(), most, !is_small)) {
      if (!is_small) return false;
      most = kSmallReplyBytes;
    }
    while (!queue_.empty()) {
      const std::size_t bytes = BytesOf(queue_.front().result);
      if (bytes > most) break;
      most -= bytes;
      queued_bytes_ -= bytes;
      *message->add_replies() = ToProto(std::move(queue_.front()));
      queue_.pop_front();
    }
    return true;
  }

  grpc::Status EndStatus() {
    absl::MutexLock lock(&mutex_);
    return end_status_;
  }

  RunRegistry& registry_;
  PeerGuard& guard_;
  const std::shared_ptr<ReplyRoom> room_;
  FirstMessageTimer<ServiceStoreStream> first_message_;
  std::shared_ptr<Run> run_;  // set by the first message, on the reading side only
  StorePeer peer_ = kNoPeer;  // set with it
  v1::StoreRequests requests_;
  StoreBatch batch_;  // what is left of them; used by the thread in GoOn()

  absl::Mutex mutex_;
  std::deque<StoreReply> queue_ ABSL_GUARDED_BY(mutex_);
  std::size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status end_status_ ABSL_GUARDED_BY(mutex_);
  BatchWriter<v1::StoreReplies> out_;
};

}  // namespace

void StoreService::Serve(CompletionThreads& threads) {
  const auto make = [this, &threads] {
    return std::make_shared<ServiceStoreStream>(registry_, guard_, room_, threads);
  };
  for (const auto& queue : threads.queues()) {
    ServeCalls(*this, &StoreService::RequestExchange, *queue, make);
  }
}

}  // namespace ddprun
