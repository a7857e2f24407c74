// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_upstream.h"

#include <utility>

#include "rendezvous/convert.h"

namespace ddprun {

std::shared_ptr<StoreUpstream> StoreUpstream::Make(const std::shared_ptr<grpc::Channel>& channel,
                                                   StoreHello hello, TakeBatch take_batch,
                                                   OnReplies on_replies, OnEnd on_end) {
  return std::make_shared<StoreUpstream>(channel, std::move(hello), std::move(take_batch),
                                         std::move(on_replies), std::move(on_end));
}

StoreUpstream::StoreUpstream(const std::shared_ptr<grpc::Channel>& channel, StoreHello hello,
                             TakeBatch take_batch, OnReplies on_replies, OnEnd on_end)
    : stub_(v1::Store::NewStub(channel)),
      hello_(std::move(hello)),
      take_batch_(std::move(take_batch)),
      on_replies_(std::move(on_replies)),
      on_end_(std::move(on_end)),
      out_([this](v1::StoreRequests* message) { return Fill(message); },
           [this](const v1::StoreRequests* message) { StartWrite(message); },
           [this] {
             StartWritesDone();
             RemoveHold();
           }) {}

void StoreUpstream::Begin() {
  self_ = shared_from_this();
  stub_->async()->Exchange(&context_, this);
  // Requests come from any thread; without the hold the stream could be done under their hands.
  AddHold();
  StartRead(&replies_);
  Flush();
  StartCall();
}

bool StoreUpstream::Fill(v1::StoreRequests* message) {
  const bool greet = !std::exchange(greeted_, true);
  if (greet) *message->mutable_hello() = ToProto(hello_);
  StoreBatch batch;
  if (!take_batch_(&batch)) return greet;
  AddTo(message, std::move(batch));
  return true;
}

void StoreUpstream::OnReadDone(bool ok) {
  if (!ok) {
    out_.Abandon();
    out_.Flush();
    return;
  }
  on_replies_(FromProto(std::move(replies_)));
  replies_.Clear();
  StartRead(&replies_);
}

void StoreUpstream::OnDone(const grpc::Status& status) {
  on_end_(this, status);
  // They hold whoever holds this stream. Whoever still flushes finds the writer ended.
  on_replies_ = nullptr;
  on_end_ = nullptr;
  self_.reset();
}

}  // namespace ddprun
