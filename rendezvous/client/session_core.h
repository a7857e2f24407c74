// SPDX-License-Identifier: Apache-2.0
// What a node does when its stream to the service begins, speaks and ends: it tries again, gives
// up, or tells the agent. A pure function of state, event and time (session_client.cc has the
// streams and the alarms).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/base/backoff.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/values/session_types.h"
#include "rendezvous/wire/channel_cause.h"

namespace ddprun {

// How a stream ended.
struct StreamEnd {
  absl::Status status;
  ChannelCause cause = ChannelCause::kOther;
  std::string reason;  // ReasonText()
  // What answers will never accept this node (ServiceChannel::FinalReason()).
  std::optional<absl::Status> final_reason;
};

enum class SessionPhase {
  kConnecting,    // no stream was answered yet
  kAnswered,      // the service answered the first one, and has sent no directive yet
  kInRun,         // it has sent directives on the current stream
  kReconnecting,  // the node was in the run, and its stream broke
  kAnsweredAgain,
  kFinal,  // the service sent Finish or Refused
  kEnded,  // SessionEnded was told
  kClosing,
};

// ---- Effects, to be performed in their order

struct TellAgent {
  SessionEvent event;
};
// Opens another stream.
struct TryAfter {
  std::chrono::milliseconds pause{0};
  bool at_next = true;  // at the next service, where there are several
};
// GiveUp(number) is to be called once this time is over, unless the limit is cancelled.
struct SetLimit {
  int number = 0;
  std::chrono::milliseconds time{0};
};
struct CancelLimit {};
// Ends the current stream, whose end is of no interest.
struct CancelStream {};

using SessionEffect = std::variant<TellAgent, TryAfter, SetLimit, CancelLimit, CancelStream>;
using SessionEffects = std::vector<SessionEffect>;

class SessionCore {
 public:
  // `target`: of the service, for people. `services`: how many may be asked; one of them leads.
  SessionCore(std::string target, Join join, std::chrono::milliseconds connect_timeout,
              TimePoint now, std::size_t services = 1);

  // The limit of the first connection.
  SetLimit Begin() const { return {limit_, connect_timeout_}; }
  // The first report of the next stream.
  const Join& join() const { return join_; }
  SessionPhase phase() const { return phase_; }
  // Reports are sent at once. Otherwise they wait for the service's answer.
  bool IsOpen() const;
  bool IsOver() const { return phase_ == SessionPhase::kEnded || phase_ == SessionPhase::kClosing; }

  // The report is to be repeated on another stream.
  void Keep(const Report& report);
  // On purpose: no other stream is opened before this time.
  void HoldBackUntil(TimePoint time) { not_before_ = time; }
  void Close() { phase_ = SessionPhase::kClosing; }

  // The service has answered the stream. Returns the reports that it is sent then: those of an
  // earlier stream may be lost, and repeating them is harmless. Empty the second time.
  std::vector<Report> Answered();
  SessionEffects Received(Directive directive);
  SessionEffects Ended(const StreamEnd& end, TimePoint now);
  // A limit that has been replaced by another one, or is not waited for any more, ends nothing.
  SessionEffects GiveUp(int limit);

 private:
  void BeginReconnecting(const StreamEnd& end, TimePoint now, SessionEffects& effects);
  void TryAgain(const StreamEnd& end, TimePoint now, SessionEffects& effects);
  bool MayTryAgain(const StreamEnd& end, TimePoint now);
  std::optional<SessionEvent> WhyAgain(const StreamEnd& end, std::chrono::milliseconds remaining);
  std::string WhyItEnded(const StreamEnd& end) const;
  absl::Status EndStatus(const StreamEnd& end, TimePoint now) const;
  absl::Status NotReached() const;
  absl::Status NotBack() const;
  absl::Status Silent() const;

  const std::string target_;
  const std::chrono::milliseconds connect_timeout_;
  const std::size_t services_;
  std::size_t asked_ = 0;  // of them, since the last pause
  Join join_;
  SessionPhase phase_ = SessionPhase::kConnecting;
  TimePoint deadline_;  // of the first connection, or of reconnecting
  std::chrono::milliseconds window_{0};
  int limit_ = 0;                  // the number of the last one
  std::optional<Accepted> lease_;  // once the node was accepted
  std::vector<Report> unacked_;    // since round_ began; a handful
  RoundId round_ = kNoRound;
  std::string why_broken_;
  std::string reported_;  // why it tries again
  Backoff backoff_;
  TimePoint not_before_{};
  std::optional<TimePoint> refused_until_;  // while nothing listens
};

}  // namespace ddprun
