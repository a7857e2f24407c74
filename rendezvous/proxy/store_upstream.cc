// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/store_upstream.h"

#include <utility>

#include "proto/limits/limited_messages.h"
#include "rendezvous/proxy/channel_connector.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/store_convert.h"

namespace ddprun {

StoreUpstream::StoreUpstream(const std::shared_ptr<grpc::Channel>& channel, std::string target,
                             StoreHello hello, Handlers handlers)
    : stub_(v1::Store::NewStub(channel)),
      target_(std::move(target)),
      hello_(std::move(hello)),
      handlers_(std::move(handlers)),
      out_([this](v1::StoreRequests* message) { return Fill(message); },
           [this](const v1::StoreRequests* message) { StartWrite(message); },
           [this] {
             StartWritesDone();
             RemoveHold();
           }) {}

void StoreUpstream::Begin() {
  self_ = shared_from_this();
  stub_->async()->Exchange(&context_, this);
  // Requests come from any thread; without the hold the stream could end during a write.
  AddHold();
  StartRead(&replies_);
  begun_ = true;
  Flush();
  StartCall();
}

bool StoreUpstream::Fill(v1::StoreRequests* message) {
  const bool greet = !std::exchange(greeted_, true);
  if (greet) *message->mutable_hello() = ToProto(hello_);
  StoreBatch batch;
  if (!handlers_.take_batch(&batch)) return greet;
  AddTo(message, std::move(batch));
  return true;
}

void StoreUpstream::OnReadDone(bool ok) {
  if (!ok) {
    if (TakeSizeRefusal()) context_.TryCancel();
    out_.Abandon();
    out_.Flush();
    return;
  }
  const bool room = handlers_.on_replies(FromProto(std::move(replies_)));
  replies_ = {};
  {
    absl::MutexLock lock(&mutex_);
    if (!room && pause_.Begin()) return;
  }
  StartRead(&replies_);
}

void StoreUpstream::Resume() {
  {
    absl::MutexLock lock(&mutex_);
    if (!pause_.End()) return;
  }
  StartRead(&replies_);
}

void StoreUpstream::OnDone(const grpc::Status& status) {
  handlers_.on_end(status.ok() ? absl::OkStatus()
                               : absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                              ReasonText(status, target_)));
  // The handlers hold the owner of this stream. A later Flush() finds the writer ended.
  handlers_ = {};
  self_.reset();
}

namespace {

class ChannelConnector final : public StoreConnector {
 public:
  explicit ChannelConnector(std::shared_ptr<ServiceChannel> channel)
      : channel_(std::move(channel)) {}

  std::shared_ptr<StoreLink> Open(StoreHello hello, StoreLink::Handlers handlers) override {
    return std::make_shared<StoreUpstream>(channel_->channel(), channel_->target(),
                                           std::move(hello), std::move(handlers));
  }

 private:
  const std::shared_ptr<ServiceChannel> channel_;
};

}  // namespace

std::shared_ptr<StoreConnector> MakeStoreConnector(std::shared_ptr<ServiceChannel> channel) {
  return std::make_shared<ChannelConnector>(std::move(channel));
}

}  // namespace ddprun
