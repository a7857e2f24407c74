// SPDX-License-Identifier: Apache-2.0
// The client's end of one Store.Exchange stream, for a worker's client and for the agent's proxy.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/write_queue.h"

namespace ddprun {

class StoreUpstream final : public grpc::ClientBidiReactor<v1::StoreRequest, v1::StoreReply>,
                            public std::enable_shared_from_this<StoreUpstream> {
 public:
  struct Hello {
    std::string run_id;
    std::string node_id;
  };
  // Called on gRPC's threads, one at a time; OnEnd is the last.
  using OnReply = std::function<void(v1::StoreReply)>;
  using OnEnd = std::function<void(const StoreUpstream*, const grpc::Status&)>;

  // Does not wait for the other side. The stream keeps itself alive until OnEnd was called.
  static std::shared_ptr<StoreUpstream> Open(const std::shared_ptr<grpc::Channel>& channel,
                                             const Hello& hello, OnReply on_reply, OnEnd on_end);

  StoreUpstream(const std::shared_ptr<grpc::Channel>& channel, OnReply on_reply, OnEnd on_end);

  // Threadsafe. Push() keeps the order, Flush() writes; after the end both do nothing.
  void Push(v1::StoreRequest request) { out_.Push(std::move(request)); }
  void Flush() { out_.Flush(); }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { out_.OnWriteDone(ok); }
  void OnDone(const grpc::Status& status) override;

 private:
  void Begin(const Hello& hello);

  const std::unique_ptr<v1::Store::Stub> stub_;
  OnReply on_reply_;
  OnEnd on_end_;
  grpc::ClientContext context_;
  std::shared_ptr<StoreUpstream> self_;
  v1::StoreReply reply_;
  WriteQueue<v1::StoreRequest> out_;
};

}  // namespace ddprun
