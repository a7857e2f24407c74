// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/session_core.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

double Seconds(milliseconds time) { return std::chrono::duration<double>(time).count(); }

milliseconds Between(TimePoint from, TimePoint to) {
  return std::chrono::duration_cast<milliseconds>(to - from);
}

// The log feed repeats its lines itself, and what these others say is of the moment.
bool IsSaidOnce(const Report& report) {
  return std::holds_alternative<Heartbeat>(report) || std::holds_alternative<FaultReport>(report) ||
         std::holds_alternative<PreemptionReport>(report) ||
         std::holds_alternative<OwnerQueries>(report) ||
         std::holds_alternative<OwnerAnswers>(report);
}

}  // namespace

SessionCore::SessionCore(std::string target, Join join, milliseconds connect_timeout, TimePoint now,
                         std::size_t services)
    : target_(std::move(target)),
      connect_timeout_(connect_timeout),
      services_(services),
      join_(std::move(join)),
      deadline_(now + connect_timeout) {}

bool SessionCore::IsOpen() const {
  switch (phase_) {
    case SessionPhase::kAnswered:
    case SessionPhase::kInRun:
    case SessionPhase::kAnsweredAgain:
    case SessionPhase::kFinal:
      return true;
    case SessionPhase::kConnecting:
    case SessionPhase::kReconnecting:
    case SessionPhase::kEnded:
    case SessionPhase::kClosing:
      return false;
  }
  return false;
}

// Lines that wait for the next stream are kept, so that they precede the report of the workers'
// ends.
void SessionCore::Keep(const Report& report) {
  const bool lines = std::holds_alternative<LogLines>(report);
  if (!IsSaidOnce(report) && !(lines && IsOpen())) unacked_.push_back(report);
}

std::vector<Report> SessionCore::Answered() {
  if (phase_ == SessionPhase::kConnecting) {
    phase_ = SessionPhase::kAnswered;
  } else if (phase_ == SessionPhase::kReconnecting) {
    phase_ = SessionPhase::kAnsweredAgain;
  } else {
    return {};
  }
  std::vector<Report> reports = unacked_;
  std::erase_if(unacked_,
                [](const Report& report) { return std::holds_alternative<LogLines>(report); });
  return reports;
}

SessionEffects SessionCore::Received(Directive directive) {
  if (IsOver()) return {};
  SessionEffects effects;
  const bool is_first = phase_ != SessionPhase::kInRun && phase_ != SessionPhase::kFinal;
  if (is_first) effects.emplace_back(CancelLimit{});
  const bool is_final =
      std::holds_alternative<Finish>(directive) || std::holds_alternative<Refused>(directive);
  if (is_final || is_first) phase_ = is_final ? SessionPhase::kFinal : SessionPhase::kInRun;
  if (const auto* accepted = std::get_if<Accepted>(&directive)) {
    if (lease_.has_value()) effects.emplace_back(TellAgent{Reconnected{}});
    lease_ = *accepted;
    backoff_.Reset();
    asked_ = 0;
    refused_until_.reset();
    reported_.clear();
  } else if (const auto* start = std::get_if<Start>(&directive);
             start != nullptr && start->round != round_) {
    round_ = start->round;
    std::erase_if(unacked_,
                  [&](const Report& report) { return RoundOf(report).value_or(round_) < round_; });
  }
  effects.emplace_back(TellAgent{std::move(directive)});
  return effects;
}

SessionEffects SessionCore::Ended(const StreamEnd& end, TimePoint now) {
  if (IsOver()) return {};
  SessionEffects effects;
  const bool was_answered = phase_ != SessionPhase::kConnecting;
  if (phase_ == SessionPhase::kInRun && lease_.has_value()) BeginReconnecting(end, now, effects);
  if (phase_ == SessionPhase::kAnsweredAgain) phase_ = SessionPhase::kReconnecting;
  // The one of several services that led has ended before it took the node.
  if (phase_ == SessionPhase::kAnswered && services_ > 1) phase_ = SessionPhase::kConnecting;
  const bool never = end.final_reason.has_value() && !was_answered;
  if (MayTryAgain(end, now) && !never && now < deadline_) {
    TryAgain(end, now, effects);
    return effects;
  }
  absl::Status status = never ? *end.final_reason : EndStatus(end, now);
  phase_ = SessionPhase::kEnded;
  effects.emplace_back(CancelLimit{});
  effects.emplace_back(TellAgent{SessionEnded{std::move(status)}});
  return effects;
}

// One service after the other, with a pause after all of them.
void SessionCore::TryAgain(const StreamEnd& end, TimePoint now, SessionEffects& effects) {
  const milliseconds remaining = Between(now, deadline_);
  TryAfter again{kConnectBackoffMin};
  if (absl::IsAborted(end.status)) {
    // It stood by, and leads now.
    again.at_next = false;
  } else if (++asked_ < services_) {
    again.pause = milliseconds(0);
  } else {
    asked_ = 0;
    if (auto event = WhyAgain(end, remaining)) effects.emplace_back(TellAgent{*std::move(event)});
    again.pause = backoff_.Next(join_.resume ? kReconnectBackoffMax : kConnectBackoffMax);
  }
  again.pause = std::min(std::max(again.pause, Between(now, not_before_)), remaining);
  effects.emplace_back(again);
}

void SessionCore::BeginReconnecting(const StreamEnd& end, TimePoint now, SessionEffects& effects) {
  why_broken_ = end.status.ok() ? "the service closed it" : WhyItEnded(end);
  phase_ = SessionPhase::kReconnecting;
  join_.resume = true;
  window_ = lease_->durable ? milliseconds(kReconnectTimeout) : lease_->lease;
  deadline_ = now + window_;
  reported_.clear();
  effects.emplace_back(SetLimit{++limit_, window_});
}

bool SessionCore::MayTryAgain(const StreamEnd& end, TimePoint now) {
  // CANCELLED: a server that ends, such as one that stands by and leads now, has cancelled a call
  // that came over its last connection.
  if (phase_ == SessionPhase::kConnecting) {
    return absl::IsUnavailable(end.status) || absl::IsAborted(end.status) ||
           absl::IsCancelled(end.status);
  }
  if (phase_ != SessionPhase::kReconnecting) return false;
  if (lease_->durable) return true;
  // If a service without a journal no longer listens, it has ended, and the run with it; unless a
  // forwarder on the way is being restarted.
  if (end.cause != ChannelCause::kRefused) {
    refused_until_.reset();
    return true;
  }
  if (!refused_until_) refused_until_ = now + kRefusedTimeout;
  return now < *refused_until_;
}

// A service that has answered once is a ddprun that accepts this node's certificate.
std::string SessionCore::WhyItEnded(const StreamEnd& end) const {
  if (phase_ != SessionPhase::kConnecting && end.cause == ChannelCause::kCutOff)
    return "it was closed without a status, as when the service is killed";
  return end.reason;
}

// The event for another attempt, if its reason is new.
std::optional<SessionEvent> SessionCore::WhyAgain(const StreamEnd& end, milliseconds remaining) {
  std::string why = end.status.ok() ? why_broken_ : WhyItEnded(end);
  if (why == reported_) return std::nullopt;
  const bool is_first = reported_.empty();
  reported_ = why;
  if (phase_ == SessionPhase::kConnecting) return Connecting{std::move(why), remaining};
  if (!is_first) return std::nullopt;
  return Reconnecting{std::move(why), remaining};
}

SessionEffects SessionCore::GiveUp(int limit) {
  if (limit != limit_) return {};
  absl::Status status;
  switch (phase_) {
    case SessionPhase::kConnecting:
      status = NotReached();
      break;
    case SessionPhase::kReconnecting:
      status = NotBack();
      break;
    case SessionPhase::kAnswered:
    case SessionPhase::kAnsweredAgain:
      status = Silent();
      break;
    case SessionPhase::kInRun:
    case SessionPhase::kFinal:
    case SessionPhase::kEnded:
    case SessionPhase::kClosing:
      return {};
  }
  phase_ = SessionPhase::kEnded;
  return {CancelStream{}, TellAgent{SessionEnded{std::move(status)}}};
}

// ---- Sentences

absl::Status SessionCore::NotReached() const {
  // What is left of --join-timeout, a few milliseconds less, is shown as its user wrote it.
  const double seconds = std::round(10 * Seconds(connect_timeout_)) / 10;
  return absl::DeadlineExceededError(absl::StrCat(
      "the rendezvous service at ", target_, " was not reached within ", seconds, " s: ",
      reported_.empty() ? "no answer; the host is down or a firewall drops the packets"
                        : reported_));
}

// The service accepted the stream, and sent no directive, which it does at once.
// It answered, so to advise that it be started would be wrong.
absl::Status SessionCore::Silent() const {
  return absl::FailedPreconditionError(
      absl::StrCat("the rendezvous service at ", target_, " accepted the connection but sent ",
                   "nothing within ", Seconds(join_.resume ? window_ : connect_timeout_),
                   " s; it hangs: check its disk (--journal) and its machine, and start it again"));
}

absl::Status SessionCore::NotBack() const {
  return absl::UnavailableError(
      absl::StrCat("the connection to the rendezvous service at ", target_, " ended: ", why_broken_,
                   "; coming back within ", Seconds(window_),
                   " s failed: ", reported_.empty() ? "no answer" : reported_));
}

absl::Status SessionCore::EndStatus(const StreamEnd& end, TimePoint now) const {
  if (phase_ == SessionPhase::kFinal) return absl::OkStatus();
  const std::string ended =
      absl::StrCat("the connection to the rendezvous service at ", target_, " ended: ");
  if (phase_ == SessionPhase::kReconnecting) {
    std::string why = why_broken_;
    if (now < deadline_) {
      absl::StrAppend(&why, "; it no longer listens, tried for ", Seconds(kRefusedTimeout),
                      " s: ", WhyItEnded(end));
    } else if (!end.status.ok()) {
      absl::StrAppend(&why, "; coming back within ", Seconds(window_),
                      " s failed: ", WhyItEnded(end));
    }
    return absl::UnavailableError(absl::StrCat(ended, why));
  }
  if (phase_ != SessionPhase::kConnecting) {
    return absl::UnavailableError(
        absl::StrCat(ended, end.status.ok() ? "the service closed it" : end.status.message()));
  }
  if (absl::IsUnavailable(end.status)) return NotReached();
  return absl::Status(end.status.code(),
                      absl::StrCat("what answers at ", target_,
                                   " is not a ddprun rendezvous service: ", end.status.message()));
}

}  // namespace ddprun
