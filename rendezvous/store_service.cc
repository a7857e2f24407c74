// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/version.h"
#include "rendezvous/convert.h"
#include "rendezvous/first_message_timer.h"
#include "rendezvous/printable.h"
#include "rendezvous/store_stream.h"

namespace ddprun {
namespace {

class ServiceStoreStream final : public StoreStream, public ReplySink {
 public:
  ServiceStoreStream(RunRegistry& registry, PeerGuard& guard, grpc::CallbackServerContext* context)
      : registry_(registry), guard_(guard), context_(context) {}

  void BeginServing() {
    first_message_.Begin(std::static_pointer_cast<ServiceStoreStream>(shared_from_this()),
                         [](ServiceStoreStream& self) {
                           self.EndWith({grpc::StatusCode::DEADLINE_EXCEEDED,
                                         "the stream's first request did not come in time"});
                         });
    Begin();
  }

  void Push(std::uint64_t id, StoreResult result) override {
    PushReply(ToProto(id, std::move(result)));
  }
  void Flush() override { FlushReplies(); }

 private:
  void OnRequest(v1::StoreRequest& request) override {
    if (!first_message_.Came()) return;
    switch (request.kind_case()) {
      case v1::StoreRequest::kHello:
        Greet(request.hello());
        return;
      case v1::StoreRequest::kOp:
        if (run_ == nullptr) break;
        Submit(request.id(), std::move(*request.mutable_op()));
        return;
      case v1::StoreRequest::kCancel:
        if (run_ == nullptr) break;
        run_->Cancel(this, request.cancel().id());
        return;
      case v1::StoreRequest::KIND_NOT_SET:
        break;
    }
    EndWith({grpc::StatusCode::INVALID_ARGUMENT,
             "the first request of a store stream must be StoreHello"});
  }

  void OnPeerGone() override {
    first_message_.Came();
    if (run_ != nullptr) run_->CancelAll(this);
  }

  void Greet(const v1::StoreHello& hello) {
    if (hello.protocol_version() != kProtocolVersion) {
      EndWith({grpc::StatusCode::FAILED_PRECONDITION,
               absl::StrCat("the store's client speaks protocol ", hello.protocol_version(),
                            ", the service speaks protocol ", kProtocolVersion,
                            "; install the same ddprun on all nodes")});
      return;
    }
    if (absl::Status status = guard_.CheckNodeId(*context_, hello.node_id()); !status.ok()) {
      EndWith({grpc::StatusCode::PERMISSION_DENIED, std::string(status.message())});
      return;
    }
    if (run_ == nullptr) run_ = registry_.Find(hello.run_id());
    if (run_ == nullptr) {
      EndWith(
          {grpc::StatusCode::NOT_FOUND,
           absl::StrCat("the rendezvous service knows no run '",
                        Printable(hello.run_id().substr(0, kNameBytesMax)), "'; it may be over")});
    }
  }

  void Submit(std::uint64_t id, v1::StoreOp message) {
    auto self = std::static_pointer_cast<ServiceStoreStream>(shared_from_this());
    auto op = FromProto(std::move(message));
    if (!op.ok()) {
      StoreResult result;
      result.status = op.status();
      Push(id, std::move(result));
      Flush();
      return;
    }
    run_->Submit(self, id, *std::move(op), std::chrono::steady_clock::now());
  }

  RunRegistry& registry_;
  PeerGuard& guard_;
  grpc::CallbackServerContext* const context_;  // valid until OnDone
  FirstMessageTimer<ServiceStoreStream> first_message_;
  std::shared_ptr<Run> run_;  // set by the first request, on the reading side only
};

}  // namespace

grpc::ServerBidiReactor<v1::StoreRequest, v1::StoreReply>* StoreService::Exchange(
    grpc::CallbackServerContext* context) {
  auto stream = std::make_shared<ServiceStoreStream>(registry_, guard_, context);
  stream->BeginServing();
  return stream.get();
}

}  // namespace ddprun
