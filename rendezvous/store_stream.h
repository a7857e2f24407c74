// SPDX-License-Identifier: Apache-2.0
// The server's end of one Store.Exchange stream: reading, answering, and not reading while the peer
// does not take its answers. The service and the agent's proxy derive from it and decide what a
// request means.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/ddprun.pb.h"
#include "rendezvous/limits.h"
#include "rendezvous/write_queue.h"

namespace ddprun {

// Owns itself from Begin() until OnDone; others may hold it too.
class StoreStream : public grpc::ServerBidiReactor<v1::StoreRequest, v1::StoreReply>,
                    public std::enable_shared_from_this<StoreStream> {
 public:
  void Begin() {
    self_ = shared_from_this();
    StartSendInitialMetadata();
    StartRead(&request_);
  }

  void PushReply(v1::StoreReply reply) { out_.Push(std::move(reply)); }
  void FlushReplies() { out_.Flush(); }

  void OnReadDone(bool ok) final {
    if (!ok) {
      OnPeerGone();
      out_.Abandon();
      out_.Flush();
      return;
    }
    OnRequest(request_);
    {
      absl::MutexLock lock(&mutex_);
      if (out_.bytes() > kStreamReplyBytesMax) {
        reading_paused_ = true;
        return;
      }
    }
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) final {
    out_.OnWriteDone(ok);
    {
      absl::MutexLock lock(&mutex_);
      if (!reading_paused_ || out_.bytes() > kStreamReplyBytesMax / 2) return;
      reading_paused_ = false;
    }
    StartRead(&request_);
  }

  void OnDone() final { self_.reset(); }

 protected:
  StoreStream()
      : out_([this](const v1::StoreReply* message) { StartWrite(message); },
             [this] { Finish(end_status_); }) {}

  // One at a time, in order.
  virtual void OnRequest(v1::StoreRequest& request) = 0;
  virtual void OnPeerGone() = 0;

  // Only from OnRequest.
  void EndWith(grpc::Status status) {
    end_status_ = std::move(status);
    out_.Close();
    out_.Flush();
  }

 private:
  std::shared_ptr<StoreStream> self_;
  v1::StoreRequest request_;
  grpc::Status end_status_;
  WriteQueue<v1::StoreReply> out_;
  absl::Mutex mutex_;
  bool reading_paused_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ddprun
