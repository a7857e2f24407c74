// SPDX-License-Identifier: Apache-2.0
// The agent's half of the store: what it asks, and what it makes one of.
#include "rendezvous/store/store_coalescer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/rendezvous/store_hub_fixture.h"

namespace ddprun {
namespace {

using V = StoreVerb;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr StoreWorker kOne{1};
constexpr StoreWorker kTwo{2};
constexpr StoreWorker kThree{3};

class StoreCoalescerTest : public ::testing::Test {
 protected:
  StoreCoalescerTest() { folder.SetRound(kRound); }

  void Submit(StoreWorker worker, StoreOp op) {
    Keep(folder.Submit(worker, ++ids[worker], std::move(op), now));
  }
  void Reply(std::uint64_t id, StoreResult result) {
    Keep(folder.Receive({{id, std::move(result)}}));
  }
  void Keep(StoreCoalescer::Answers all) {
    for (const auto& answer : all) {
      for (const auto& to : answer.to) {
        EXPECT_TRUE(answers.emplace(to, answer.result).second) << "answered twice";
      }
    }
  }
  std::deque<StoreRequest> Sent() { return folder.TakeBatch(now).requests; }

  static StoreResult Number(std::int64_t number) {
    StoreResult result;
    result.number = number;
    return result;
  }
  static StoreResult Value(std::string value) {
    StoreResult result;
    result.values = {std::move(value)};
    return result;
  }
  // The worker's answer to its n-th operation.
  const StoreResult& At(StoreWorker worker, std::uint64_t n) {
    EXPECT_TRUE(answers.contains({worker, n}));
    return answers[{worker, n}];
  }

  StoreCoalescer folder;
  TimePoint now{seconds(1000)};
  std::map<StoreWorker, std::uint64_t> ids;
  std::map<std::pair<StoreWorker, std::uint64_t>, StoreResult> answers;
};

TEST_F(StoreCoalescerTest, WhatIsAskedTogetherGoesUpTogether) {
  Submit(kOne, MakeOp(V::kSet, {"a"}, {"1"}));
  Submit(kTwo, MakeOp(V::kSet, {"b"}, {"2"}));
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_FALSE(folder.HasBatch());
  Reply(sent[1].id, {});
  EXPECT_EQ(answers.size(), 1u);
  At(kTwo, 1);
}

TEST_F(StoreCoalescerTest, AddsThatWaitToGoUpAreOneAndEachHasItsOwnAnswer) {
  Submit(kOne, AddOp("n", 1));
  Submit(kTwo, AddOp("n", 10));
  Submit(kThree, AddOp("other", 5));
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].op->number, 11);
  Reply(sent[0].id, Number(111));
  EXPECT_EQ(At(kOne, 1).number, 101);
  EXPECT_EQ(At(kTwo, 1).number, 111);
}

TEST_F(StoreCoalescerTest, WhatIsSubmittedAloneIsNotCoalescedAndKeepsItsOrder) {
  Submit(kOne, AddOp("n", 1));
  Submit(kOne, MakeOp(V::kGet, {"k"}));
  const auto alone = [&](StoreOp op) {
    Keep(folder.Submit(kTwo, ++ids[kTwo], std::move(op), now, /*alone=*/true));
  };
  alone(MakeOp(V::kSet, {"k"}, {"v"}));
  alone(AddOp("n", 2));
  alone(MakeOp(V::kGet, {"k"}));
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 5u);
  EXPECT_EQ(sent[2].op->verb, V::kSet);
  EXPECT_EQ(sent[3].op->number, 2);
  EXPECT_EQ(sent[4].op->verb, V::kGet);
  Submit(kThree, MakeOp(V::kGet, {"k"}));
  Reply(sent[4].id, Value("v"));
  EXPECT_EQ(At(kTwo, 3).values[0], "v");
  EXPECT_FALSE(answers.contains({kThree, 1})) << "that GET joined the first one's";
}

TEST_F(StoreCoalescerTest, AddsGatherWhileOneIsUnderWay) {
  Submit(kOne, AddOp("n", 1));
  const auto first = Sent();
  Submit(kTwo, AddOp("n", 2));
  Submit(kThree, AddOp("n", 3));
  EXPECT_FALSE(folder.HasBatch());
  Reply(first[0].id, Number(1));
  const auto second = Sent();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].op->number, 5);
  Reply(second[0].id, Number(6));
  EXPECT_EQ(At(kTwo, 1).number, 3);
  EXPECT_EQ(At(kThree, 1).number, 6);
}

TEST_F(StoreCoalescerTest, AddsWhoseSumCouldMeanSomethingElseStayApart) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  Submit(kOne, AddOp("n", kMost));
  Submit(kTwo, AddOp("n", 1));     // the sum does not fit
  Submit(kThree, AddOp("n", -1));  // in between the count could have been too large
  EXPECT_EQ(Sent().size(), 3u);
}

TEST_F(StoreCoalescerTest, ARefusedSumIsTriedInParts) {
  Submit(kOne, AddOp("n", 1));
  Submit(kTwo, AddOp("n", 2));
  auto sent = Sent();
  StoreResult refused;
  refused.status = absl::InvalidArgumentError("does not fit");
  Reply(sent[0].id, refused);
  EXPECT_TRUE(answers.empty());
  sent = Sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].op->number, 1);
  EXPECT_EQ(sent[1].op->number, 2);
  Reply(sent[0].id, Number(7));
  Reply(sent[1].id, refused);
  EXPECT_EQ(At(kOne, 1).number, 7);
  EXPECT_FALSE(At(kTwo, 1).status.ok());
}

TEST_F(StoreCoalescerTest, AWorkerThatGoesTakesItsUnsentPartAlong) {
  Submit(kOne, AddOp("n", 1));
  Submit(kTwo, AddOp("n", 10));
  folder.WorkerGone(kOne);
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].op->number, 10);
  folder.WorkerGone(kTwo);
  const auto cancelled = Sent();
  ASSERT_EQ(cancelled.size(), 1u);
  EXPECT_FALSE(cancelled[0].op.has_value());
  EXPECT_EQ(folder.unanswered(), 0u);
}

TEST_F(StoreCoalescerTest, AWorkerThatGoesLeavesItsSentPartInTheSum) {
  Submit(kOne, AddOp("n", 1));
  Submit(kTwo, AddOp("n", 10));
  const auto sent = Sent();
  folder.WorkerGone(kOne);
  EXPECT_FALSE(folder.HasBatch());
  Reply(sent[0].id, Number(11));
  EXPECT_EQ(answers.size(), 1u);
  EXPECT_EQ(At(kTwo, 1).number, 11);
}

TEST_F(StoreCoalescerTest, TheSameQuestionIsAskedOnce) {
  for (const StoreWorker worker : {kOne, kTwo}) Submit(worker, WaitingOp(V::kGet, {"k"}));
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 1u);
  now += milliseconds(1);
  Submit(kThree, WaitingOp(V::kWait, {"k"}));  // another question
  EXPECT_EQ(Sent().size(), 1u);
  Reply(sent[0].id, Value("v"));
  for (const StoreWorker worker : {kOne, kTwo}) EXPECT_EQ(At(worker, 1).values[0], "v");
}

TEST_F(StoreCoalescerTest, AnAnswerIsForThoseWhoCameBeforeItWasAsked) {
  for (const StoreWorker worker : {kOne, kTwo}) Submit(worker, WaitingOp(V::kGet, {"k"}));
  const auto sent = Sent();
  Submit(kThree, WaitingOp(V::kGet, {"k"}));
  Reply(sent[0].id, Value("old"));
  EXPECT_EQ(At(kTwo, 1).values[0], "old");
  const auto again = Sent();
  ASSERT_EQ(again.size(), 1u);
  Reply(again[0].id, Value("new"));
  EXPECT_EQ(At(kThree, 1).values[0], "new");
}

TEST_F(StoreCoalescerTest, EachWaitsItsOwnTime) {
  Submit(kOne, WaitingOp(V::kGet, {"k"}, milliseconds(100)));
  const auto first = Sent();
  now += milliseconds(50);
  Submit(kTwo, WaitingOp(V::kGet, {"k"}, milliseconds(100)));
  Submit(kThree, WaitingOp(V::kGet, {"k"}, milliseconds(20)));
  const auto shorter = Sent();
  ASSERT_EQ(shorter.size(), 1u) << "it cannot wait for the first one's time";
  now += milliseconds(50);
  Reply(first[0].id, TimeOver(V::kGet, milliseconds(100), {"k"}, 1));
  EXPECT_EQ(At(kOne, 1).status,
            absl::DeadlineExceededError("waited 100 ms for key 'k', which nobody has set"));
  EXPECT_FALSE(answers.contains({kTwo, 1}));
  const auto rest = Sent();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].op->timeout, milliseconds(50));
  Reply(rest[0].id, TimeOver(V::kGet, milliseconds(50), {"k"}, 1));
  EXPECT_EQ(At(kTwo, 1).status,
            absl::DeadlineExceededError("waited 100 ms for key 'k', which nobody has set"));
}

TEST_F(StoreCoalescerTest, WhatIsUnansweredIsSentAgainUnderTheSameIds) {
  Submit(kOne, MakeOp(V::kSet, {"a"}, {"1"}));
  Submit(kTwo, WaitingOp(V::kGet, {"k"}, milliseconds(100)));
  Submit(kThree, AddOp("n", 1));
  const auto sent = Sent();
  Submit(kOne, AddOp("n", 2));  // gathers
  Reply(sent[0].id, {});
  folder.Lost();
  EXPECT_THAT(folder.Unanswered(), ElementsAre(sent[2].id));
  now += milliseconds(40);
  Submit(kTwo, AddOp("n", 3));
  const StoreBatch again = folder.TakeBatch(now);
  EXPECT_THAT(again.answered, IsEmpty()) << "what is not named as unanswered is known to be";
  ASSERT_EQ(again.requests.size(), 2u);
  EXPECT_EQ(again.requests[0].id, sent[1].id);
  EXPECT_EQ(again.requests[0].op->timeout, milliseconds(60)) << "the rest of its time";
  EXPECT_EQ(again.requests[1].id, sent[2].id);
  EXPECT_EQ(again.requests[1].op->number, 1) << "what was sent stays what it was";
  Reply(sent[2].id, Number(1));
  EXPECT_EQ(Sent().at(0).op->number, 5);
}

TEST_F(StoreCoalescerTest, WaitsEndInTheirTimeWithoutAStreamToo) {
  Submit(kOne, WaitingOp(V::kGet, {"k"}, milliseconds(100)));
  Submit(kTwo, WaitingOp(V::kQueuePop, {"q"}, milliseconds(100)));
  Sent();
  folder.Lost();
  EXPECT_EQ(folder.NextDeadline(), now + milliseconds(100));
  now += milliseconds(100);
  Keep(folder.Tick(now));
  EXPECT_EQ(At(kOne, 1).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(answers.contains({kTwo, 1})) << "it may have been served";
}

TEST_F(StoreCoalescerTest, AnswersThatTheNodeHasAreSaidWithTheNextMessage) {
  Submit(kOne, MakeOp(V::kSet, {"a"}, {"1"}));
  Submit(kOne, MakeOp(V::kGet, {"a"}));
  const auto sent = Sent();
  Reply(sent[0].id, {});
  Reply(sent[1].id, Value("1"));
  EXPECT_FALSE(folder.HasBatch()) << "not worth a message of its own";
  Submit(kOne, MakeOp(V::kSet, {"a"}, {"2"}));
  EXPECT_THAT(folder.TakeBatch(now).answered, ElementsAre(sent[0].id));
}

TEST_F(StoreCoalescerTest, ARoundsEndAnswersItsOperations) {
  Submit(kOne, WaitingOp(V::kGet, {"k"}));
  Sent();
  Submit(kTwo, AddOp("n", 1));
  Keep(folder.SetRound(RoundId{2}));
  EXPECT_EQ(At(kOne, 1).status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(At(kTwo, 1).status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(folder.unanswered(), 0u);
  Submit(kOne, AddOp("n", 1));
  EXPECT_EQ(At(kOne, 2).status.code(), absl::StatusCode::kAborted);
  const auto cancelled = Sent();
  ASSERT_EQ(cancelled.size(), 1u);
  EXPECT_FALSE(cancelled[0].op.has_value());
}

TEST_F(StoreCoalescerTest, AServiceLostForGoodAnswersAll) {
  Submit(kOne, WaitingOp(V::kGet, {"k"}));
  Submit(kTwo, AddOp("n", 1));
  Sent();
  Submit(kThree, AddOp("n", 1));
  Keep(folder.Fail(absl::UnavailableError("gone")));
  for (const StoreWorker worker : {kOne, kTwo, kThree}) {
    EXPECT_EQ(At(worker, 1).status, absl::UnavailableError("gone"));
  }
  EXPECT_FALSE(folder.HasBatch());
}

TEST_F(StoreCoalescerTest, AMessageHasASize) {
  const std::string large(kStoreBatchBytes * 2 / 3, 'x');
  for (int i = 0; i < 3; ++i) Submit(kOne, MakeOp(V::kSet, {"k"}, {large}));
  EXPECT_EQ(Sent().size(), 2u);
  EXPECT_EQ(Sent().size(), 1u);
}

}  // namespace
}  // namespace ddprun
