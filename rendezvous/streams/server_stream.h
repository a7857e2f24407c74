// SPDX-License-Identifier: Apache-2.0
// The service's end of a stream, with the verbs of gRPC's callback API (grpc::ServerBidiReactor),
// over a completion queue of our own (completion_threads.h says why).
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "rendezvous/base/limits.h"
#include "rendezvous/streams/completion_threads.h"

namespace ddprun {

// Created before its call arrives, and owns itself until OnDone(), the last callback, which comes
// after Finish(). At most one read and one write are pending at a time.
template <typename Request, typename Response>
class ServerStream {
 public:
  explicit ServerStream(CompletionThreads& threads) : threads_(threads) { threads_.StreamBegins(); }
  virtual ~ServerStream() { threads_.StreamEnds(); }
  ServerStream(const ServerStream&) = delete;
  ServerStream& operator=(const ServerStream&) = delete;

  // `request`: requests a call of the service's method, as RequestSession(...) does. `came` is
  // called when the call has arrived; if the server ends before that, only OnDone() is called.
  template <typename Service, typename Method>
  void WaitForCall(std::shared_ptr<ServerStream> self, Service& service, Method request,
                   grpc::ServerCompletionQueue& queue, std::function<void()> came) {
    self_ = std::move(self);
    came_ = std::move(came);
    ++under_way_;
    (service.*request)(&context_, &stream_, &queue, &queue,
                       static_cast<CompletionThreads::Operation*>(&call_));
  }

 protected:
  virtual void Begin() = 0;  // after `came`
  virtual void OnReadDone(bool ok) = 0;
  virtual void OnWriteDone(bool ok) = 0;
  virtual void OnDone() {}

  const grpc::ServerContext& context() const { return context_; }

  // Before StartSendInitialMetadata().
  void AddHeader(const char* name) { context_.AddInitialMetadata(name, ""); }
  void StartSendInitialMetadata() {
    ++under_way_;
    stream_.SendInitialMetadata(static_cast<CompletionThreads::Operation*>(&metadata_));
  }
  void StartRead(Request* request) {
    ++under_way_;
    // Clearing a message keeps the memory of all its parts.
    if (request->SpaceUsedLong() > kKeptMessageBytes) *request = Request();
    stream_.Read(request, static_cast<CompletionThreads::Operation*>(&read_));
  }
  // Do not call this or Finish() again before OnWriteDone().
  void StartWrite(const Response* response) {
    ++under_way_;
    stream_.Write(*response, static_cast<CompletionThreads::Operation*>(&write_));
  }
  void Finish(const grpc::Status& status) {
    ++under_way_;
    stream_.Finish(status, static_cast<CompletionThreads::Operation*>(&finish_));
  }

 private:
  class Then final : public CompletionThreads::Operation {
   public:
    Then(ServerStream& stream, void (ServerStream::*then)(bool)) : stream_(stream), then_(then) {}
    void Done(bool ok) override {
      (stream_.*then_)(ok);
      stream_.Over();
    }

   private:
    ServerStream& stream_;
    void (ServerStream::*const then_)(bool);
  };

  void CallDone(bool ok) {
    const std::function<void()> came = std::exchange(came_, nullptr);
    if (ok) {
      ++under_way_;  // until Finish() is done
      came();
      Begin();
    }
  }
  void MetadataDone(bool) {}
  void ReadDone(bool ok) { OnReadDone(ok); }
  void WriteDone(bool ok) { OnWriteDone(ok); }
  void FinishDone(bool) { --under_way_; }

  void Over() {
    if (--under_way_ > 0) return;
    const std::shared_ptr<ServerStream> self = std::move(self_);
    OnDone();
  }

  CompletionThreads& threads_;
  std::shared_ptr<ServerStream> self_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<Response, Request> stream_{&context_};
  std::function<void()> came_;
  std::atomic<int> under_way_{0};
  Then call_{*this, &ServerStream::CallDone};
  Then metadata_{*this, &ServerStream::MetadataDone};
  Then read_{*this, &ServerStream::ReadDone};
  Then write_{*this, &ServerStream::WriteDone};
  Then finish_{*this, &ServerStream::FinishDone};
};

// Waits for the next call of the service's method on the queue, in a stream from `make`, and for
// another one whenever a call has come.
template <typename Service, typename Method, typename Make>
void ServeCalls(Service& service, Method request, grpc::ServerCompletionQueue& queue, Make make) {
  const auto stream = make();
  stream->WaitForCall(stream, service, request, queue, [&service, request, &queue, make] {
    ServeCalls(service, request, queue, make);
  });
}

}  // namespace ddprun
