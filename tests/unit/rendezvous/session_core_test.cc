// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/session_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class SessionCoreTest : public testing::Test {
 protected:
  static StreamEnd Unreached(const std::string& reason = "connection refused") {
    return {.status = absl::UnavailableError("gRPC's words"),
            .cause = reason == "connection refused" ? ChannelCause::kRefused : ChannelCause::kOther,
            .reason = reason};
  }

  // The first effect of that kind; null: none.
  template <typename Effect>
  static const Effect* Find(const SessionEffects& effects) {
    for (const SessionEffect& effect : effects) {
      if (const auto* found = std::get_if<Effect>(&effect)) return found;
    }
    return nullptr;
  }
  template <typename Told>
  static const Told* Tells(const SessionEffects& effects) {
    for (const SessionEffect& effect : effects) {
      const auto* tell = std::get_if<TellAgent>(&effect);
      if (tell == nullptr) continue;
      if (const auto* told = std::get_if<Told>(&tell->event)) return told;
    }
    return nullptr;
  }

  void Join(const Accepted& accepted) {
    core_.Answered();
    core_.Received(accepted);
  }

  const TimePoint begin_{seconds(1000)};
  SessionCore core_{"a:29500", ddprun::Join{}, seconds(10), begin_};
};

TEST_F(SessionCoreTest, TriesAgainWithLongerPausesAndTellsEachReasonOnce) {
  SessionEffects effects = core_.Ended(Unreached(), begin_);
  ASSERT_NE(Tells<Connecting>(effects), nullptr);
  EXPECT_EQ(Tells<Connecting>(effects)->reason, "connection refused");
  EXPECT_EQ(Tells<Connecting>(effects)->remaining, seconds(10));
  EXPECT_EQ(Find<TryAfter>(effects)->pause, milliseconds(20));
  effects = core_.Ended(Unreached(), begin_);
  EXPECT_EQ(Tells<Connecting>(effects), nullptr);
  EXPECT_EQ(Find<TryAfter>(effects)->pause, milliseconds(40));
  effects = core_.Ended(Unreached("no route to host"), begin_);
  EXPECT_NE(Tells<Connecting>(effects), nullptr);
}

TEST_F(SessionCoreTest, ALimitEndsTheAttemptsWithTheLastReason) {
  core_.Ended(Unreached(), begin_);
  const SessionEffects effects = core_.GiveUp(core_.Begin().number);
  EXPECT_NE(Find<CancelStream>(effects), nullptr);
  ASSERT_NE(Tells<SessionEnded>(effects), nullptr);
  EXPECT_THAT(std::string(Tells<SessionEnded>(effects)->status.message()),
              HasSubstr("was not reached within 10 s: connection refused"));
  EXPECT_TRUE(core_.Ended(Unreached(), begin_).empty());
}

// A part of --join-timeout has passed before the first attempt.
TEST_F(SessionCoreTest, TheTimeIsShownAsItWasGiven) {
  SessionCore core("a:29500", ddprun::Join{}, milliseconds(999), begin_);
  core.Ended(Unreached(), begin_);
  const SessionEffects effects = core.GiveUp(core.Begin().number);
  EXPECT_EQ(Tells<SessionEnded>(effects)->status.message(),
            "the rendezvous service at a:29500 was not reached within 1 s: connection refused");
}

TEST_F(SessionCoreTest, WhatWillNeverAcceptThisNodeEndsItAtOnce) {
  StreamEnd end = Unreached();
  end.final_reason = absl::FailedPreconditionError("it has another token");
  const SessionEffects effects = core_.Ended(end, begin_);
  ASSERT_NE(Tells<SessionEnded>(effects), nullptr);
  EXPECT_EQ(Tells<SessionEnded>(effects)->status, *end.final_reason);
}

TEST_F(SessionCoreTest, ANodeInTheRunComesBackWithinItsLease) {
  const int first = core_.Begin().number;
  Join({.lease = seconds(15)});
  SessionEffects effects = core_.Ended(Unreached("it was closed"), begin_ + seconds(30));
  EXPECT_EQ(core_.phase(), SessionPhase::kReconnecting);
  EXPECT_TRUE(core_.join().resume);
  ASSERT_NE(Find<SetLimit>(effects), nullptr);
  EXPECT_EQ(Find<SetLimit>(effects)->time, seconds(15));
  ASSERT_NE(Tells<Reconnecting>(effects), nullptr);
  EXPECT_NE(Find<TryAfter>(effects), nullptr);
  EXPECT_TRUE(core_.GiveUp(first).empty());  // the first connection's is over

  core_.Answered();
  effects = core_.Received(Accepted{.lease = seconds(15)});
  EXPECT_NE(Tells<Reconnected>(effects), nullptr);
  EXPECT_NE(Find<CancelLimit>(effects), nullptr);
  EXPECT_EQ(core_.phase(), SessionPhase::kInRun);
}

TEST_F(SessionCoreTest, AServiceThatStopsListeningHasEndedUnlessItIsDurable) {
  Join({.lease = seconds(15)});
  core_.Ended(Unreached(), begin_);
  EXPECT_NE(Find<TryAfter>(core_.Ended(Unreached(), begin_ + kRefusedTimeout / 2)), nullptr);
  const SessionEffects effects = core_.Ended(Unreached(), begin_ + kRefusedTimeout);
  ASSERT_NE(Tells<SessionEnded>(effects), nullptr);
  EXPECT_THAT(std::string(Tells<SessionEnded>(effects)->status.message()),
              HasSubstr("it no longer listens"));

  SessionCore durable("a:29500", ddprun::Join{}, seconds(10), begin_);
  durable.Answered();
  durable.Received(Accepted{.lease = seconds(15), .durable = true});
  durable.Ended(Unreached(), begin_);
  EXPECT_NE(Find<TryAfter>(durable.Ended(Unreached(), begin_ + seconds(60))), nullptr);
}

TEST_F(SessionCoreTest, OneThatAnswersAndSaysNothingIsNamedAsHanging) {
  core_.Answered();
  const SessionEffects effects = core_.GiveUp(core_.Begin().number);
  ASSERT_NE(Tells<SessionEnded>(effects), nullptr);
  // As a refusal's, its sentence is shown without the advice to start the service.
  EXPECT_TRUE(absl::IsFailedPrecondition(Tells<SessionEnded>(effects)->status));
  EXPECT_THAT(std::string(Tells<SessionEnded>(effects)->status.message()),
              HasSubstr("accepted the connection but sent nothing within 10 s"));
}

TEST_F(SessionCoreTest, AStreamThatEndsAfterTheVerdictEndsWell) {
  Join({.lease = seconds(15)});
  core_.Received(Finish{});
  const SessionEffects effects = core_.Ended(Unreached(), begin_);
  ASSERT_NE(Tells<SessionEnded>(effects), nullptr);
  EXPECT_TRUE(Tells<SessionEnded>(effects)->status.ok());
}

TEST_F(SessionCoreTest, ReportsOfTheRoundAreRepeatedOnTheNextStream) {
  Join({.lease = seconds(15)});
  Start start;
  start.round = RoundId{2};
  core_.Received(start);
  core_.Keep(WorkerFailed{RoundId{2}, {}});
  core_.Keep(Heartbeat{});
  core_.Keep(LogLines{});  // the stream is open: the feed repeats its lines
  core_.Ended(Unreached(), begin_);
  core_.Keep(LogLines{});
  const std::vector<Report> reports = core_.Answered();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<WorkerFailed>(reports[0]));
  EXPECT_TRUE(std::holds_alternative<LogLines>(reports[1]));
  EXPECT_TRUE(core_.Answered().empty());

  start.round = RoundId{3};
  core_.Received(start);
  core_.Ended(Unreached(), begin_);
  EXPECT_TRUE(core_.Answered().empty()) << "those of an older round are of no interest";
}

TEST_F(SessionCoreTest, NoAttemptComesBeforeTheTimeItIsHeldBackTo) {
  Join({.lease = seconds(15)});
  core_.HoldBackUntil(begin_ + seconds(3));
  EXPECT_EQ(Find<TryAfter>(core_.Ended(Unreached(), begin_))->pause, seconds(3));
}

TEST_F(SessionCoreTest, AClosedOneTellsNothing) {
  Join({.lease = seconds(15)});
  core_.Close();
  EXPECT_TRUE(core_.Received(Waiting{}).empty());
  EXPECT_TRUE(core_.Ended(Unreached(), begin_).empty());
}

TEST_F(SessionCoreTest, SeveralServicesAreAskedInTurnAndThenThereIsAPause) {
  SessionCore core("a:1,b:1,c:1", ddprun::Join{}, seconds(10), begin_, 3);
  for (int service = 1; service < 3; ++service) {
    const SessionEffects effects = core.Ended(Unreached(), begin_);
    EXPECT_EQ(Find<TryAfter>(effects)->pause, milliseconds(0));
    EXPECT_TRUE(Find<TryAfter>(effects)->at_next);
    EXPECT_EQ(Tells<Connecting>(effects), nullptr);  // one of them stands by as a rule
  }
  const SessionEffects effects = core.Ended(Unreached(), begin_);
  EXPECT_EQ(Find<TryAfter>(effects)->pause, milliseconds(20));
  EXPECT_TRUE(Find<TryAfter>(effects)->at_next);
  EXPECT_NE(Tells<Connecting>(effects), nullptr);
  EXPECT_EQ(Find<TryAfter>(core.Ended(Unreached(), begin_))->pause, milliseconds(0));
}

TEST_F(SessionCoreTest, ACallThatEndedWithItsServerIsMadeAgain) {
  const StreamEnd cancelled{.status = absl::CancelledError("Cancelling all calls"),
                            .cause = ChannelCause::kOther,
                            .reason = "Cancelling all calls"};
  SessionCore core("a:1,b:1", ddprun::Join{}, seconds(10), begin_, 2);
  EXPECT_NE(Find<TryAfter>(core.Ended(cancelled, begin_)), nullptr);
  // And if it had answered, and not taken the node yet.
  core.Answered();
  EXPECT_NE(Find<TryAfter>(core.Ended(cancelled, begin_)), nullptr);
  core.Answered();
  core.Received(Accepted{.lease = seconds(10), .durable = true});
  EXPECT_EQ(core.phase(), SessionPhase::kInRun);
}

TEST_F(SessionCoreTest, AServiceThatLeadsNowIsAskedAgain) {
  const StreamEnd leads{.status = absl::AbortedError("this service leads now"),
                        .cause = ChannelCause::kOther,
                        .reason = "this service leads now"};
  SessionCore core("a:1,b:1", ddprun::Join{}, seconds(10), begin_, 2);
  SessionEffects effects = core.Ended(leads, begin_);
  ASSERT_NE(Find<TryAfter>(effects), nullptr);
  EXPECT_FALSE(Find<TryAfter>(effects)->at_next);
  // And when the node is in the run.
  core.Answered();
  core.Received(Accepted{.lease = seconds(10), .durable = true});
  EXPECT_TRUE(Find<TryAfter>(core.Ended(Unreached("closed"), begin_))->at_next);
  effects = core.Ended(leads, begin_);
  EXPECT_FALSE(Find<TryAfter>(effects)->at_next);
  EXPECT_LE(Find<TryAfter>(effects)->pause, milliseconds(20));
}

}  // namespace
}  // namespace ddprun
