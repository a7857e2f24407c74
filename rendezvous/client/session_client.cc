// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/session_client.h"

#include <grpcpp/alarm.h>

#include <functional>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/limits/limited_messages.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/client/session_core.h"
#include "rendezvous/streams/write_queue.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/session_convert.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class Session;

// One attempt to open the stream; the accepted one becomes the session. Owns itself until OnDone.
class Attempt final : public grpc::ClientBidiReactor<v1::Report, v1::Directive>,
                      public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(std::shared_ptr<Session> session, const std::shared_ptr<grpc::Channel>& channel)
      : session_(std::move(session)),
        stub_(v1::Rendezvous::NewStub(channel)),
        out_([this](const v1::Report* message) { StartWrite(message); },
             [this] {
               StartWritesDone();
               RemoveHold();
             }) {}

  void Begin(const Join& join) {
    self_ = shared_from_this();
    stub_->async()->Session(&context_, this);
    // Reports are sent from other threads; without the hold the stream could end during a write.
    AddHold();
    StartRead(&directive_);
    Send(join);
    StartCall();
  }

  void Send(const Report& report) {
    out_.Push(ToProto(report));
    out_.Flush();
  }

  // Writes what is queued, then half-closes; the service replies by ending the stream.
  void Close() {
    out_.Close();
    out_.Flush();
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { out_.OnWriteDone(ok); }
  void OnDone(const grpc::Status& status) override;

 private:
  const std::shared_ptr<Session> session_;
  const std::unique_ptr<v1::Rendezvous::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<Attempt> self_;
  v1::Directive directive_;
  WriteQueue<v1::Report> out_;
};

// The core, and what successive connection attempts share. Kept alive by the client and by its
// attempts.
class Session final : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<ServiceChannel> channel, Join join, milliseconds connect_timeout,
          SessionClient::Handler handler)
      : channel_(std::move(channel)),
        core_(channel_->target(), std::move(join), connect_timeout, Clock::now(),
              channel_->services()),
        handler_(std::move(handler)) {}

  void Begin() {
    {
      absl::MutexLock lock(&mutex_);
      Set(core_.Begin());
    }
    TryOnce();
  }

  void Send(Report report) {
    std::shared_ptr<Attempt> attempt;
    {
      absl::MutexLock lock(&mutex_);
      if (core_.IsOver()) return;
      core_.Keep(report);
      if (!core_.IsOpen()) return;  // Answered() sends it
      attempt = attempt_;
    }
    attempt->Send(report);
  }

  void BreakFor(milliseconds pause) {
    {
      absl::MutexLock lock(&mutex_);
      if (core_.IsOver()) return;
      core_.HoldBackUntil(Clock::now() + pause);
    }
    CancelAttempt();
  }

  // Ends the stream; afterwards the handler is not called again.
  void Close() {
    std::shared_ptr<Attempt> attempt;
    bool is_read = false;  // else no peer reads the last reports
    {
      absl::MutexLock lock(&mutex_);
      is_read = core_.IsOpen();
      core_.Close();
      attempt = attempt_;
      retry_alarm_.reset();
      limit_alarm_.reset();
    }
    if (attempt != nullptr) {
      attempt->Close();
      if (!is_read || !WaitUntilDone()) {
        attempt->Cancel();
        WaitUntilDone();
      }
    }
    // A running call of the handler ends before this lock is taken; later ones see the flag.
    absl::MutexLock lock(&handler_mutex_);
    handler_closed_ = true;
  }

  // A service answered.
  void Answered() {
    absl::MutexLock lock(&mutex_);
    for (const Report& report : core_.Answered()) attempt_->Send(report);
  }

  void Received(Directive directive) {
    if (std::holds_alternative<Finish>(directive)) ConfirmVerdict();
    SessionEffects effects;
    {
      absl::MutexLock lock(&mutex_);
      effects = core_.Received(std::move(directive));
    }
    Perform(std::move(effects));
  }

  void Ended(const grpc::Status& status) {
    const StreamEnd end{.status = ToAbsl(status),
                        .cause = CauseOf(status),
                        .reason = ReasonText(status, channel_->target()),
                        .final_reason = channel_->FinalReason(status)};
    SessionEffects effects;
    {
      absl::MutexLock lock(&mutex_);
      attempt_.reset();
      attempt_done_.SignalAll();
      effects = core_.Ended(end, Clock::now());
    }
    Perform(std::move(effects));
  }

 private:
  void Perform(SessionEffects effects) {
    for (SessionEffect& effect : effects) {
      std::visit(Overloaded{[this](TellAgent& tell) { Notify(std::move(tell.event)); },
                            [this](TryAfter& again) {
                              if (again.at_next) channel_->AskNext();
                              TryLater(again.pause);
                            },
                            [this](SetLimit& limit) {
                              absl::MutexLock lock(&mutex_);
                              Set(limit);
                            },
                            [this](CancelLimit&) {
                              absl::MutexLock lock(&mutex_);
                              limit_alarm_.reset();
                            },
                            [this](CancelStream&) { CancelAttempt(); }},
                 effect);
    }
  }

  void CancelAttempt() {
    std::shared_ptr<Attempt> attempt;
    {
      absl::MutexLock lock(&mutex_);
      attempt = attempt_;
    }
    if (attempt != nullptr) attempt->Cancel();
  }

  // The service keeps the verdict for this node until the node confirms it.
  void ConfirmVerdict() {
    std::shared_ptr<Attempt> attempt;
    {
      absl::MutexLock lock(&mutex_);
      attempt = attempt_;
    }
    if (attempt != nullptr) attempt->Send(Leave{});
  }

  // False: the stream has not ended in time.
  bool WaitUntilDone() {
    const absl::Time deadline = absl::Now() + absl::FromChrono(kCloseTimeout);
    absl::MutexLock lock(&mutex_);
    while (attempt_ != nullptr) {
      if (attempt_done_.WaitWithDeadline(&mutex_, deadline)) return attempt_ == nullptr;
    }
    return true;
  }

  void TryOnce() {
    // This client has its own backoff; the channel's would add to it.
    grpc::experimental::ChannelResetConnectionBackoff(channel_->channel().get());
    // Begun under the lock, so that Close() never sees an attempt that has not begun. gRPC does not
    // call back inline.
    absl::MutexLock lock(&mutex_);
    if (core_.IsOver()) return;
    attempt_ = std::make_shared<Attempt>(shared_from_this(), channel_->channel());
    attempt_->Begin(core_.join());
  }

  void TryLater(milliseconds pause) {
    absl::MutexLock lock(&mutex_);
    if (core_.IsOver()) return;
    SetAlarm(retry_alarm_, pause, [](Session& session) { session.TryOnce(); });
  }

  void Set(const SetLimit& limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (core_.IsOver()) return;
    SetAlarm(limit_alarm_, limit.time, [number = limit.number](Session& session) {
      SessionEffects effects;
      {
        absl::MutexLock lock(&session.mutex_);
        effects = session.core_.GiveUp(number);
        if (!effects.empty()) session.retry_alarm_.reset();
      }
      session.Perform(std::move(effects));
    });
  }

  void Notify(SessionEvent event) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&handler_mutex_);
    if (handler_closed_) return;
    if (std::holds_alternative<SessionEnded>(event)) handler_closed_ = true;
    handler_(std::move(event));
  }

  // A new alarm each time: the callback of the old one may still be running. The session is held
  // weakly: an alarm keeps its callback as long as it lives, and the session holds the alarm.
  void SetAlarm(std::unique_ptr<grpc::Alarm>& alarm, milliseconds after,
                std::function<void(Session&)> then) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    alarm = std::make_unique<grpc::Alarm>();
    alarm->Set(std::chrono::system_clock::now() + after,
               [weak = weak_from_this(), then = std::move(then)](bool ok) {
                 const std::shared_ptr<Session> self = weak.lock();
                 if (ok && self != nullptr) then(*self);
               });
  }

  const std::shared_ptr<ServiceChannel> channel_;

  absl::Mutex mutex_;  // never held while the handler is called
  absl::CondVar attempt_done_;
  SessionCore core_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Attempt> attempt_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> retry_alarm_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> limit_alarm_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex handler_mutex_;  // makes the handler's calls one at a time
  const SessionClient::Handler handler_;
  bool handler_closed_ ABSL_GUARDED_BY(handler_mutex_) = false;
};

void Attempt::OnReadInitialMetadataDone(bool ok) {
  if (ok && context_.GetServerInitialMetadata().count(kServesHeader) > 0) session_->Answered();
}

void Attempt::OnReadDone(bool ok) {
  if (!ok) {
    if (TakeSizeRefusal()) Cancel();
    out_.Abandon();
    out_.Flush();
    return;
  }
  // gRPC may deliver the first message before the metadata. Reports sent in reply to that message,
  // just before Close(), would otherwise be lost.
  session_->Answered();
  if (auto directive = FromProto(directive_); directive.ok())
    session_->Received(*std::move(directive));
  StartRead(&directive_);
}

void Attempt::OnDone(const grpc::Status& status) {
  session_->Ended(status);
  self_.reset();
}

class SessionClientImpl final : public SessionClient {
 public:
  explicit SessionClientImpl(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  ~SessionClientImpl() override { session_->Close(); }
  void Send(Report report) override { session_->Send(std::move(report)); }
  bool BreakFor(milliseconds pause) override {
    session_->BreakFor(pause);
    return true;
  }

 private:
  const std::shared_ptr<Session> session_;
};

}  // namespace

std::unique_ptr<SessionClient> SessionClient::Open(std::shared_ptr<ServiceChannel> channel,
                                                   Join join, milliseconds connect_timeout,
                                                   Handler handler) {
  auto session = std::make_shared<Session>(std::move(channel), std::move(join), connect_timeout,
                                           std::move(handler));
  session->Begin();
  return std::make_unique<SessionClientImpl>(std::move(session));
}

}  // namespace ddprun
