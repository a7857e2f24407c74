// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/watch_client.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "proto/limits/limited_messages.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/status_convert.h"

namespace ddprun {
namespace {

// Owns itself until OnDone.
class Reader final : public grpc::ClientReadReactor<v1::RunNews>,
                     public std::enable_shared_from_this<Reader> {
 public:
  explicit Reader(std::shared_ptr<ServiceChannel> channel)
      : channel_(std::move(channel)), stub_(v1::Control::NewStub(channel_->channel())) {}

  void Begin(const std::string& run_id, const RunQuestion& question) {
    self_ = shared_from_this();
    request_ = ToProto(question, run_id);
    stub_->async()->WatchRun(&context_, &request_, this);
    // Reads begin on the caller's thread too; without the hold the call could end meanwhile.
    AddHold();
    StartRead(&message_);
    StartCall();
  }

  // After it Next() must not be called.
  void Leave() {
    context_.TryCancel();
    bool untaken = false;
    {
      absl::MutexLock lock(&mutex_);
      left_ = true;
      untaken = std::exchange(has_message_, false);
    }
    if (untaken) RemoveHold();
  }

  absl::StatusOr<std::optional<RunNews>> Next(TimePoint until) {
    std::optional<RunNews> news;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(this, &Reader::HasSomething),
                              absl::FromChrono(until - std::chrono::steady_clock::now()));
      if (!has_message_) {
        if (!end_.has_value()) return std::nullopt;
        return EndStatus();
      }
      absl::StatusOr<RunNews> read = FromProto(message_);
      if (!read.ok()) return read.status();
      news = *std::move(read);
      has_message_ = false;
      began_ = true;
    }
    StartRead(&message_);
    return news;
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      absl::MutexLock lock(&mutex_);
      // A message that arrives after Leave() is dropped.
      has_message_ = !left_;
      if (has_message_) return;
    } else if (TakeSizeRefusal()) {
      context_.TryCancel();
    }
    RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Reader> self = std::move(self_);
    absl::MutexLock lock(&mutex_);
    end_ = status;
  }

 private:
  bool HasSomething() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_message_ || end_.has_value();
  }

  absl::Status EndStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (end_->ok()) return absl::OutOfRangeError("the watch is over");
    if (began_ && (end_->error_code() == grpc::StatusCode::UNAVAILABLE ||
                   end_->error_code() == grpc::StatusCode::CANCELLED)) {
      return absl::UnavailableError(
          absl::StrCat("the connection to the rendezvous service at ", channel_->target(),
                       " ended: ", ReasonText(*end_, channel_->target())));
    }
    return CallError(*channel_, *end_, std::chrono::milliseconds(0));
  }

  const std::shared_ptr<ServiceChannel> channel_;
  const std::unique_ptr<v1::Control::Stub> stub_;
  grpc::ClientContext context_;
  v1::WatchRunRequest request_;
  std::shared_ptr<Reader> self_;
  v1::RunNews message_;  // gRPC's from StartRead() to OnReadDone(), then Next()'s

  absl::Mutex mutex_;
  bool has_message_ ABSL_GUARDED_BY(mutex_) = false;
  bool began_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
};

class RunWatchImpl final : public RunWatch {
 public:
  explicit RunWatchImpl(std::shared_ptr<Reader> reader) : reader_(std::move(reader)) {}
  ~RunWatchImpl() override { reader_->Leave(); }
  absl::StatusOr<std::optional<RunNews>> Next(TimePoint until) override {
    return reader_->Next(until);
  }

 private:
  const std::shared_ptr<Reader> reader_;
};

}  // namespace

std::unique_ptr<RunWatch> RunWatch::Open(std::shared_ptr<ServiceChannel> channel,
                                         const std::string& run_id, const RunQuestion& question) {
  auto reader = std::make_shared<Reader>(std::move(channel));
  reader->Begin(run_id, question);
  return std::make_unique<RunWatchImpl>(std::move(reader));
}

}  // namespace ddprun
