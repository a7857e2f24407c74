// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/session_client.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/limits/limited_messages.h"
#include "rendezvous/base/backoff.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/streams/write_queue.h"
#include "rendezvous/wire/grpc_channel.h"
#include "rendezvous/wire/session_convert.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class SessionCore;

// One attempt to open the stream; the accepted one becomes the session. Owns itself until OnDone.
class Attempt final : public grpc::ClientBidiReactor<v1::Report, v1::Directive>,
                      public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(std::shared_ptr<SessionCore> core, const std::shared_ptr<grpc::Channel>& channel)
      : core_(std::move(core)),
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
  const std::shared_ptr<SessionCore> core_;
  const std::unique_ptr<v1::Rendezvous::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<Attempt> self_;
  v1::Directive directive_;
  WriteQueue<v1::Report> out_;
};

// State shared by successive connection attempts. Kept alive by the client and by its attempts.
class SessionCore final : public std::enable_shared_from_this<SessionCore> {
 public:
  SessionCore(std::shared_ptr<ServiceChannel> channel, Join join, milliseconds connect_timeout,
              SessionClient::Handler handler)
      : channel_(std::move(channel)),
        connect_timeout_(connect_timeout),
        join_(std::move(join)),
        deadline_(Clock::now() + connect_timeout),
        handler_(std::move(handler)) {}

  void Begin() {
    SetAlarm(deadline_alarm_, connect_timeout_, [](SessionCore& core) { core.GiveUp(false); });
    TryOnce();
  }

  void Send(Report report) {
    std::shared_ptr<Attempt> attempt;
    {
      absl::MutexLock lock(&mutex_);
      if (ended_ || closing_) return;
      // The log feed repeats its lines itself. Lines that wait for the next stream are kept here,
      // so that they precede the report of the workers' ends.
      const bool lines = std::holds_alternative<LogLines>(report);
      const bool once = std::holds_alternative<Heartbeat>(report) ||
                        std::holds_alternative<FaultReport>(report) ||
                        std::holds_alternative<PreemptionReport>(report) ||
                        std::holds_alternative<OwnerQueries>(report) ||
                        std::holds_alternative<OwnerAnswers>(report);
      if (!once && !(lines && accepted_)) {
        unacked_.push_back(report);
      }
      // Until the stream is accepted, another attempt may follow; Answered() sends all reports.
      if (!accepted_) return;
      attempt = attempt_;
    }
    attempt->Send(report);
  }

  void BreakFor(milliseconds pause) {
    std::shared_ptr<Attempt> attempt;
    {
      absl::MutexLock lock(&mutex_);
      if (ended_ || closing_) return;
      not_before_ = Clock::now() + pause;
      attempt = attempt_;
    }
    if (attempt != nullptr) attempt->Cancel();
  }

  // Ends the stream; afterwards the handler is not called again.
  void Close() {
    std::shared_ptr<Attempt> attempt;
    {
      absl::MutexLock lock(&mutex_);
      closing_ = true;
      attempt = attempt_;
      retry_alarm_.reset();
      window_alarm_.reset();
    }
    deadline_alarm_.Cancel();
    if (attempt != nullptr) {
      attempt->Close();
      if (!WaitUntilDone(LastWords::kWanted)) {
        attempt->Cancel();
        WaitUntilDone(LastWords::kGivenUp);
      }
    }
    // A running call of the handler ends before this lock is taken; later ones see the flag.
    absl::MutexLock lock(&handler_mutex_);
    handler_closed_ = true;
  }

  // A service answered. Reports of an earlier stream may be lost, and repeating them is harmless.
  void Answered() {
    absl::MutexLock lock(&mutex_);
    if (accepted_) return;
    accepted_ = answered_once_ = true;
    for (const Report& report : unacked_) attempt_->Send(report);
    std::erase_if(unacked_,
                  [](const Report& report) { return std::holds_alternative<LogLines>(report); });
  }

  void Received(Directive directive) {
    bool back = false;
    bool first = false;
    if (std::holds_alternative<Finish>(directive)) ConfirmVerdict();
    {
      absl::MutexLock lock(&mutex_);
      if (ended_) return;
      first = !std::exchange(heard_, true);
      final_ = final_ || std::holds_alternative<Finish>(directive) ||
               std::holds_alternative<Refused>(directive);
      if (const auto* accepted = std::get_if<Accepted>(&directive)) {
        back = lease_.has_value();
        lease_ = *accepted;
        backoff_.Reset();
        refused_until_.reset();
        words_.clear();
      } else if (const auto* start = std::get_if<Start>(&directive);
                 start != nullptr && start->round != round_) {
        round_ = start->round;
        std::erase_if(unacked_, [&](const Report& report) {
          return RoundOf(report).value_or(round_) < round_;
        });
      }
    }
    if (first) deadline_alarm_.Cancel();
    if (back) Notify(Reconnected{});
    Notify(std::move(directive));
  }

  void Ended(const grpc::Status& status) {
    std::optional<SessionEvent> event;
    std::optional<milliseconds> pause;
    {
      absl::MutexLock lock(&mutex_);
      attempt_.reset();
      attempt_done_.SignalAll();
      if (ended_) return;
      if (heard_ && lease_ && !final_) BeginReconnecting(status);
      accepted_ = heard_ = false;
      const std::optional<absl::Status> final_reason =
          answered_once_ ? std::nullopt : channel_->FinalReason(status);
      const auto remaining = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
      if (MayTryAgain(status) && !final_reason && remaining.count() > 0) {
        event = WhyAgain(status, remaining);
        const auto held_back = std::chrono::duration_cast<milliseconds>(not_before_ - Clock::now());
        const milliseconds next =
            backoff_.Next(join_.resume ? kReconnectBackoffMax : kConnectBackoffMax);
        pause = std::min(std::max(next, held_back), remaining);
      } else {
        ended_ = true;
        event = SessionEnded{final_reason ? *final_reason : EndStatus(status)};
      }
    }
    if (pause) {
      if (event) Notify(*std::move(event));
      TryAfter(*pause);
      return;
    }
    deadline_alarm_.Cancel();
    Notify(*std::move(event));
  }

 private:
  enum class LastWords { kWanted, kGivenUp };

  // The service keeps the verdict for this node until the node confirms it.
  void ConfirmVerdict() {
    std::shared_ptr<Attempt> attempt;
    {
      absl::MutexLock lock(&mutex_);
      attempt = attempt_;
    }
    if (attempt != nullptr) attempt->Send(Leave{});
  }

  // False if the stream has not ended in time, or was never accepted, so that no peer reads the
  // last reports.
  bool WaitUntilDone(LastWords last_words) {
    const absl::Time deadline = absl::Now() + absl::FromChrono(kCloseTimeout);
    absl::MutexLock lock(&mutex_);
    while (attempt_ != nullptr) {
      if (last_words == LastWords::kWanted && !accepted_) return false;
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
    if (ended_ || closing_) return;
    attempt_ = std::make_shared<Attempt>(shared_from_this(), channel_->channel());
    attempt_->Begin(join_);
  }

  void TryAfter(milliseconds pause) {
    absl::MutexLock lock(&mutex_);
    if (ended_ || closing_) return;
    // A new alarm each time: the callback of the old one may still be running.
    retry_alarm_ = std::make_unique<grpc::Alarm>();
    SetAlarm(*retry_alarm_, pause, [](SessionCore& core) { core.TryOnce(); });
  }

  // The time to join, or to reconnect, is over.
  void GiveUp(bool reconnecting) {
    std::shared_ptr<Attempt> attempt;
    absl::Status end;
    {
      absl::MutexLock lock(&mutex_);
      if (ended_ || heard_ || closing_ || reconnecting != join_.resume) return;
      ended_ = true;
      attempt = attempt_;
      retry_alarm_.reset();
      end = accepted_      ? SilentStatus()
            : reconnecting ? NotBackStatus(words_.empty() ? "no answer" : words_)
                           : EndStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, ""));
    }
    if (attempt != nullptr) attempt->Cancel();
    Notify(SessionEnded{std::move(end)});
  }

  // The node was in the run, and its stream broke.
  void BeginReconnecting(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    join_.resume = true;
    why_broken_ = status.ok() ? "the service closed it" : WhyItEnded(status);
    window_ = lease_->durable ? milliseconds(kReconnectTimeout) : lease_->lease;
    deadline_ = Clock::now() + window_;
    words_.clear();
    // A new alarm, as in TryAfter().
    window_alarm_ = std::make_unique<grpc::Alarm>();
    SetAlarm(*window_alarm_, window_, [](SessionCore& core) { core.GiveUp(true); });
  }

  // The service accepted the stream, and sent no directive, which it does at once.
  absl::Status SilentStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the rendezvous service at ", channel_->target(), " accepted the connection but sent ",
        "nothing within ",
        std::chrono::duration<double>(join_.resume ? window_ : connect_timeout_).count(),
        " s; it hangs: check its disk (--journal) and its machine, and start it again"));
  }

  bool MayTryAgain(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (final_ || closing_) return false;
    if (!join_.resume) {
      return !answered_once_ && status.error_code() == grpc::StatusCode::UNAVAILABLE;
    }
    if (lease_->durable) return true;
    // If a service without a journal no longer listens, it has ended, and the run with it; unless a
    // forwarder on the way is being restarted.
    if (!IsRefused(status)) {
      refused_until_.reset();
      return true;
    }
    if (!refused_until_) refused_until_ = Clock::now() + kRefusedTimeout;
    return Clock::now() < *refused_until_;
  }

  // A service that has answered once is a ddprun that accepts this node's certificate.
  std::string WhyItEnded(const grpc::Status& status) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (answered_once_ && IsCutOff(status))
      return "it was closed without a status, as when the service is killed";
    return ReasonInWords(status, channel_->target());
  }

  // The event for another attempt, if its reason is new.
  std::optional<SessionEvent> WhyAgain(const grpc::Status& status, milliseconds remaining)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::string words = status.ok() ? why_broken_ : WhyItEnded(status);
    if (words == words_) return std::nullopt;
    const bool first = words_.empty();
    words_ = words;
    if (!join_.resume) return Connecting{std::move(words), remaining};
    if (!first) return std::nullopt;
    return Reconnecting{std::move(words), remaining};
  }

  absl::Status NotBackStatus(absl::string_view reason) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::UnavailableError(
        absl::StrCat("the connection to the rendezvous service at ", channel_->target(),
                     " ended: ", why_broken_, "; coming back within ",
                     std::chrono::duration<double>(window_).count(), " s failed: ", reason));
  }

  absl::Status EndStatus(const grpc::Status& status) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (final_) return absl::OkStatus();
    const std::string& target = channel_->target();
    const auto seconds = [](milliseconds time) {
      return std::chrono::duration<double>(time).count();
    };
    if (join_.resume) {
      const std::string now = WhyItEnded(status);
      std::string why = why_broken_;
      if (!final_ && Clock::now() < deadline_) {
        absl::StrAppend(&why, "; it no longer listens, tried for ", seconds(kRefusedTimeout),
                        " s: ", now);
      } else if (!status.ok()) {
        absl::StrAppend(&why, "; coming back within ", seconds(window_), " s failed: ", now);
      }
      return absl::UnavailableError(
          absl::StrCat("the connection to the rendezvous service at ", target, " ended: ", why));
    }
    if (!answered_once_ && status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      const std::string reason =
          words_.empty() ? "no answer; the host is down or a firewall drops the packets" : words_;
      return absl::DeadlineExceededError(absl::StrCat("the rendezvous service at ", target,
                                                      " was not reached within ",
                                                      seconds(connect_timeout_), " s: ", reason));
    }
    if (answered_once_) {
      return absl::UnavailableError(
          absl::StrCat("the connection to the rendezvous service at ", target,
                       " ended: ", status.ok() ? "the service closed it" : status.error_message()));
    }
    absl::Status refused = ToAbsl(status);
    return absl::Status(refused.code(),
                        absl::StrCat("what answers at ", target,
                                     " is not a ddprun rendezvous service: ", refused.message()));
  }

  void Notify(SessionEvent event) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&handler_mutex_);
    if (handler_closed_) return;
    if (std::holds_alternative<SessionEnded>(event)) handler_closed_ = true;
    handler_(std::move(event));
  }

  // Held weakly: an alarm keeps its callback as long as it lives, and this holds the alarm.
  void SetAlarm(grpc::Alarm& alarm, milliseconds after, void (*then)(SessionCore&)) {
    alarm.Set(std::chrono::system_clock::now() + after, [weak = weak_from_this(), then](bool ok) {
      const std::shared_ptr<SessionCore> self = weak.lock();
      if (ok && self != nullptr) then(*self);
    });
  }

  const std::shared_ptr<ServiceChannel> channel_;
  const milliseconds connect_timeout_;

  absl::Mutex mutex_;  // never held while the handler is called
  absl::CondVar attempt_done_;
  std::shared_ptr<Attempt> attempt_ ABSL_GUARDED_BY(mutex_);
  Join join_ ABSL_GUARDED_BY(mutex_);
  // Deadline of the first connection, or of reconnecting.
  TimePoint deadline_ ABSL_GUARDED_BY(mutex_);
  milliseconds window_ ABSL_GUARDED_BY(mutex_){0};
  std::vector<Report> unacked_ ABSL_GUARDED_BY(mutex_);  // since round_ began; a handful
  RoundId round_ ABSL_GUARDED_BY(mutex_) = kNoRound;
  std::optional<Accepted> lease_ ABSL_GUARDED_BY(mutex_);  // once the node was accepted
  std::string why_broken_ ABSL_GUARDED_BY(mutex_);
  std::string words_ ABSL_GUARDED_BY(mutex_);
  Backoff backoff_ ABSL_GUARDED_BY(mutex_);
  TimePoint not_before_ ABSL_GUARDED_BY(mutex_){};  // no attempt before (BreakFor())
  std::optional<TimePoint> refused_until_ ABSL_GUARDED_BY(mutex_);  // while nothing listens
  bool accepted_ ABSL_GUARDED_BY(mutex_) = false;       // the service answered this stream
  bool heard_ ABSL_GUARDED_BY(mutex_) = false;          // and sent a directive on it
  bool answered_once_ ABSL_GUARDED_BY(mutex_) = false;  // it answered some stream
  bool final_ ABSL_GUARDED_BY(mutex_) = false;          // it sent Finish or Refused
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;

  absl::Mutex handler_mutex_;  // makes the handler's calls one at a time
  const SessionClient::Handler handler_;
  bool handler_closed_ ABSL_GUARDED_BY(handler_mutex_) = false;

  std::unique_ptr<grpc::Alarm> retry_alarm_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> window_alarm_ ABSL_GUARDED_BY(mutex_);  // of reconnecting
  grpc::Alarm deadline_alarm_;  // set once, before anything else can happen
};

void Attempt::OnReadInitialMetadataDone(bool ok) {
  if (ok) core_->Answered();
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
  core_->Answered();
  if (auto directive = FromProto(directive_); directive.ok())
    core_->Received(*std::move(directive));
  StartRead(&directive_);
}

void Attempt::OnDone(const grpc::Status& status) {
  core_->Ended(status);
  self_.reset();
}

class SessionClientImpl final : public SessionClient {
 public:
  explicit SessionClientImpl(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}
  ~SessionClientImpl() override { core_->Close(); }
  void Send(Report report) override { core_->Send(std::move(report)); }
  bool BreakFor(milliseconds pause) override {
    core_->BreakFor(pause);
    return true;
  }

 private:
  const std::shared_ptr<SessionCore> core_;
};

}  // namespace

std::unique_ptr<SessionClient> SessionClient::Open(std::shared_ptr<ServiceChannel> channel,
                                                   Join join, milliseconds connect_timeout,
                                                   Handler handler) {
  auto core = std::make_shared<SessionCore>(std::move(channel), std::move(join), connect_timeout,
                                            std::move(handler));
  core->Begin();
  return std::make_unique<SessionClientImpl>(std::move(core));
}

}  // namespace ddprun
