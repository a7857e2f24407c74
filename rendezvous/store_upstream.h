// SPDX-License-Identifier: Apache-2.0
// The client's end of one Store.Exchange stream: an agent's, or that of a client straight to the
// service.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/batch_writer.h"
#include "rendezvous/store_batch.h"

namespace ddprun {

class StoreUpstream final : public grpc::ClientBidiReactor<v1::StoreRequests, v1::StoreReplies>,
                            public std::enable_shared_from_this<StoreUpstream> {
 public:
  // All are called on gRPC's threads. What there is to say now; false: nothing.
  using TakeBatch = std::function<bool(StoreBatch*)>;
  // One at a time; OnEnd is the last.
  using OnReplies = std::function<void(std::vector<StoreReply>)>;
  using OnEnd = std::function<void(const StoreUpstream*, const grpc::Status&)>;

  // Does not wait for the other side. The stream keeps itself alive until OnEnd was called.
  // Begin() writes the greeting, and what there is to say with it.
  static std::shared_ptr<StoreUpstream> Make(const std::shared_ptr<grpc::Channel>& channel,
                                             StoreHello hello, TakeBatch take_batch,
                                             OnReplies on_replies, OnEnd on_end);
  void Begin();

  StoreUpstream(const std::shared_ptr<grpc::Channel>& channel, StoreHello hello,
                TakeBatch take_batch, OnReplies on_replies, OnEnd on_end);

  // There is something to say. Threadsafe; after the end it does nothing.
  void Flush() { out_.Flush(); }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { out_.OnWriteDone(ok); }
  void OnDone(const grpc::Status& status) override;

 private:
  bool Fill(v1::StoreRequests* message);

  const std::unique_ptr<v1::Store::Stub> stub_;
  StoreHello hello_;
  bool greeted_ = false;  // on the writing side only
  TakeBatch take_batch_;
  OnReplies on_replies_;
  OnEnd on_end_;
  grpc::ClientContext context_;
  std::shared_ptr<StoreUpstream> self_;
  v1::StoreReplies replies_;
  BatchWriter<v1::StoreRequests> out_;
};

}  // namespace ddprun
