// SPDX-License-Identifier: Apache-2.0
// An agent's end of a Store.Exchange stream.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/proxy/store_link.h"
#include "rendezvous/streams/batch_writer.h"

namespace ddprun {

class StoreUpstream final : public StoreLink,
                            public grpc::ClientBidiReactor<v1::StoreRequests, v1::StoreReplies>,
                            public std::enable_shared_from_this<StoreUpstream> {
 public:
  // `target` is the channel's target, for error messages.
  StoreUpstream(const std::shared_ptr<grpc::Channel>& channel, std::string target, StoreHello hello,
                Handlers handlers);

  // StoreLink. The handlers are called on gRPC's threads.
  void Begin() override;
  void Flush() override {
    if (begun_) out_.Flush();
  }
  void Resume() override;
  void Cancel() override {
    context_.TryCancel();
    Resume();  // only a read shows the end
  }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { out_.OnWriteDone(ok); }
  void OnDone(const grpc::Status& status) override;

 private:
  bool Fill(v1::StoreRequests* message);

  const std::unique_ptr<v1::Store::Stub> stub_;
  const std::string target_;
  const StoreHello hello_;
  bool greeted_ = false;  // on the writing side only
  Handlers handlers_;
  grpc::ClientContext context_;
  std::atomic<bool> begun_ = false;  // before that the call cannot be written
  std::shared_ptr<StoreUpstream> self_;
  v1::StoreReplies replies_;
  absl::Mutex mutex_;
  ReplyPause pause_ ABSL_GUARDED_BY(mutex_);
  BatchWriter<v1::StoreRequests> out_;
};

}  // namespace ddprun
