// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_upstream.h"

#include <utility>

#include "proto/version.h"

namespace ddprun {

std::shared_ptr<StoreUpstream> StoreUpstream::Open(const std::shared_ptr<grpc::Channel>& channel,
                                                   const Hello& hello, OnReply on_reply,
                                                   OnEnd on_end) {
  auto stream = std::make_shared<StoreUpstream>(channel, std::move(on_reply), std::move(on_end));
  stream->Begin(hello);
  return stream;
}

StoreUpstream::StoreUpstream(const std::shared_ptr<grpc::Channel>& channel, OnReply on_reply,
                             OnEnd on_end)
    : stub_(v1::Store::NewStub(channel)),
      on_reply_(std::move(on_reply)),
      on_end_(std::move(on_end)),
      out_([this](const v1::StoreRequest* message) { StartWrite(message); },
           [this] {
             StartWritesDone();
             RemoveHold();
           }) {}

void StoreUpstream::Begin(const Hello& hello) {
  self_ = shared_from_this();
  stub_->async()->Exchange(&context_, this);
  // Requests come from any thread; without the hold the stream could be done under their hands.
  AddHold();
  StartRead(&reply_);
  v1::StoreRequest request;
  request.mutable_hello()->set_protocol_version(kProtocolVersion);
  request.mutable_hello()->set_run_id(hello.run_id);
  request.mutable_hello()->set_node_id(hello.node_id);
  Push(std::move(request));
  Flush();
  StartCall();
}

void StoreUpstream::OnReadDone(bool ok) {
  if (!ok) {
    out_.Abandon();
    out_.Flush();
    return;
  }
  on_reply_(std::move(reply_));
  reply_.Clear();
  StartRead(&reply_);
}

void StoreUpstream::OnDone(const grpc::Status& status) {
  on_end_(this, status);
  // They hold whoever holds this stream.
  on_reply_ = nullptr;
  on_end_ = nullptr;
  self_.reset();
}

}  // namespace ddprun
