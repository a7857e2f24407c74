// SPDX-License-Identifier: Apache-2.0
// The verbs that wait: who is answered by what, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/kv_store_fixture.h"

namespace ddprun {
namespace {

using V = StoreVerb;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

TEST(KvStoreWaitTest, EveryVerbThatMakesAKeyEndsAWait) {
  const std::vector<std::function<void(TestStore&)>> makers = {
      [](TestStore& s) { s.Do(V::kSet, {"k"}, {"v"}); },
      [](TestStore& s) { s.Add("k", 1); },
      [](TestStore& s) {
        s.Do(V::kCompareSet, {"k"}, {"", "v"});
      },
      [](TestStore& s) { s.Do(V::kAppend, {"k"}, {"v"}); },
      [](TestStore& s) {
        s.Do(V::kMultiSet, {"other", "k"}, {"v", "v"});
      },
  };
  for (const auto& make : makers) {
    TestStore s;
    const StoreTicket get = s.Wait(V::kGet, {"k"});
    const StoreTicket wait = s.Wait(V::kWait, {"k"});
    EXPECT_FALSE(s.IsAnswered(get) || s.IsAnswered(wait));
    make(s);
    EXPECT_EQ(s.AnswerTo(get).values.size(), 1u);
    EXPECT_TRUE(s.AnswerTo(wait).status.ok());
    EXPECT_EQ(s.store.waiter_count(), 0u);
    EXPECT_EQ(s.store.NextDeadline(), std::nullopt);
  }
}

TEST(KvStoreWaitTest, ACountIsWaitedForUntilItIsReached) {
  TestStore s;
  const auto wait = [&s](std::int64_t number) {
    StoreOp op = MakeOp(V::kWaitCount, {"n"});
    op.number = number;
    op.timeout = seconds(10);
    return s.Submit(op);
  };
  const StoreTicket two = wait(2);
  const StoreTicket three = wait(3);
  s.Add("n", 1);
  EXPECT_FALSE(s.IsAnswered(two));
  s.Do(V::kSet, {"n"}, {"no number"});
  s.Do(V::kDelete, {"n"});
  s.Add("n", 2);
  EXPECT_TRUE(s.AnswerTo(two).status.ok());
  EXPECT_FALSE(s.IsAnswered(three));
  s.Do(V::kMultiSet, {"other", "n"}, {"9", "7"});
  EXPECT_TRUE(s.AnswerTo(three).status.ok());
  EXPECT_TRUE(s.AnswerTo(wait(7)).status.ok()) << "at once";
  const StoreTicket late = wait(8);
  s.TickAt(s.now + seconds(10));
  EXPECT_EQ(s.AnswerTo(late).status.message(),
            "waited 10000 ms for the count of key 'n', which too few have reached");
  EXPECT_EQ(s.store.waiter_count(), 0u);
}

TEST(KvStoreWaitTest, OneSetAnswersAllThatWait) {
  TestStore s;
  std::vector<StoreTicket> tickets;
  for (int i = 0; i < 1000; ++i) tickets.push_back(s.Wait(V::kGet, {"k"}));
  s.Do(V::kSet, {"k"}, {"v"});
  for (const StoreTicket ticket : tickets) EXPECT_THAT(s.AnswerTo(ticket).values, ElementsAre("v"));
}

TEST(KvStoreWaitTest, AllKeysMustBeThereAtOneTime) {
  TestStore s;
  const StoreTicket ticket = s.Wait(V::kMultiGet, {"a", "b", "a"});
  s.Do(V::kSet, {"a"}, {"1"});
  s.Do(V::kDelete, {"a"});
  s.Do(V::kSet, {"b"}, {"2"});
  EXPECT_FALSE(s.IsAnswered(ticket));
  s.Do(V::kSet, {"a"}, {"3"});
  EXPECT_THAT(s.AnswerTo(ticket).values, ElementsAre("3", "2", "3"));
}

TEST(KvStoreWaitTest, MultiSetIsSeenAsAWhole) {
  TestStore s;
  s.Do(V::kSet, {"b"}, {"old"});
  const StoreTicket ticket = s.Wait(V::kMultiGet, {"a", "b"});
  s.Do(V::kMultiSet, {"a", "b"}, {"new", "new"});
  EXPECT_THAT(s.AnswerTo(ticket).values, ElementsAre("new", "new"));
}

TEST(KvStoreWaitTest, TimeIsOverAtTheDeadlineAndTheMissingKeysAreNamed) {
  TestStore s;
  s.Do(V::kSet, {"here"}, {""});
  const StoreTicket one = s.Wait(V::kGet, {"a"}, milliseconds(100));
  const StoreTicket many = s.Wait(V::kWait, {"here", "a", "b", "c", "d"}, milliseconds(200));
  EXPECT_EQ(s.store.NextDeadline(), s.now + milliseconds(100));
  s.TickAt(s.now + milliseconds(99));
  EXPECT_FALSE(s.IsAnswered(one));
  s.TickAt(s.now + milliseconds(1));
  EXPECT_EQ(s.AnswerTo(one).status,
            absl::DeadlineExceededError("waited 100 ms for key 'a', which nobody has set"));
  EXPECT_EQ(s.store.NextDeadline(), s.now + milliseconds(100));
  s.TickAt(s.now + milliseconds(100));
  EXPECT_EQ(s.AnswerTo(many).status,
            absl::DeadlineExceededError(
                "waited 200 ms for keys 'a', 'b', 'c' and 1 more, which nobody has set"));
  EXPECT_EQ(s.store.waiter_count(), 0u);
}

TEST(KvStoreWaitTest, WithoutTimeThereIsNoWait) {
  TestStore s;
  EXPECT_EQ(s.AnswerTo(s.Wait(V::kGet, {"k"}, milliseconds(0))).status.code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(s.AnswerTo(s.Wait(V::kQueuePop, {"q"}, milliseconds(-1))).status.code(),
            absl::StatusCode::kNotFound);
}

TEST(KvStoreWaitTest, LongTimeoutsAreCut) {
  TestStore s;
  s.Wait(V::kGet, {"k"}, milliseconds::max());
  EXPECT_EQ(s.store.NextDeadline(), s.now + kStoreTimeoutMax);
}

TEST(KvStoreWaitTest, QueuesServeInOrderOfArrival) {
  TestStore s;
  const StoreTicket first = s.Wait(V::kQueuePop, {"q"});
  const StoreTicket second = s.Wait(V::kQueuePop, {"q"});
  s.Do(V::kQueuePush, {"q"}, {"1"});
  EXPECT_THAT(s.AnswerTo(first).values, ElementsAre("1"));
  EXPECT_FALSE(s.IsAnswered(second));
  EXPECT_EQ(s.Do(V::kQueueLen, {"q"}).number, 0);
  s.Do(V::kQueuePush, {"q"}, {"2"});
  EXPECT_THAT(s.AnswerTo(second).values, ElementsAre("2"));
}

TEST(KvStoreWaitTest, WaitIsContentWithAQueueButGetIsNot) {
  TestStore s;
  const StoreTicket wait = s.Wait(V::kWait, {"q"});
  const StoreTicket get = s.Wait(V::kGet, {"q"});
  const StoreTicket pop = s.Wait(V::kQueuePop, {"q"});
  const StoreTicket both = s.Wait(V::kWait, {"q", "k"});
  s.Do(V::kQueuePush, {"q"}, {"1"});
  EXPECT_THAT(s.AnswerTo(pop).values, ElementsAre("1"));
  EXPECT_FALSE(s.IsAnswered(wait)) << "the value is gone";
  s.Do(V::kQueuePush, {"q"}, {"2"});
  EXPECT_TRUE(s.AnswerTo(wait).status.ok());
  EXPECT_FALSE(s.IsAnswered(get));
  s.Do(V::kQueuePop, {"q"});
  s.Do(V::kSet, {"k"}, {""});
  EXPECT_FALSE(s.IsAnswered(both)) << "the queue is empty again";
  s.Do(V::kSet, {"q"}, {"v"});
  EXPECT_TRUE(s.IsAnswered(get) && s.IsAnswered(both));
}

TEST(KvStoreWaitTest, EachValueOfAQueueEndsOneWaitForItAlone) {
  TestStore s;
  const StoreTicket first = s.Wait(V::kWait, {"q"});
  const StoreTicket second = s.Wait(V::kWait, {"q"});
  const StoreTicket third = s.Wait(V::kWait, {"q"});
  const StoreTicket pair = s.Wait(V::kWait, {"q", "q"});
  s.Do(V::kQueuePush, {"q"}, {"1"});
  EXPECT_TRUE(s.IsAnswered(first) && s.IsAnswered(pair));
  EXPECT_FALSE(s.IsAnswered(second));
  s.Do(V::kQueuePush, {"q"}, {"2"});
  EXPECT_TRUE(s.IsAnswered(second)) << "the first value is still there";
  s.Do(V::kQueuePop, {"q"});
  s.Do(V::kQueuePop, {"q"});
  EXPECT_FALSE(s.IsAnswered(third));
  s.Do(V::kSet, {"q"}, {"v"});
  EXPECT_TRUE(s.IsAnswered(third));
  EXPECT_EQ(s.store.waiter_count(), 0u);
}

TEST(KvStoreWaitTest, ACancelledPopTakesNothing) {
  TestStore s;
  const StoreTicket gone = s.Wait(V::kQueuePop, {"q"});
  s.store.Cancel(gone);
  s.store.Cancel(gone);
  s.Do(V::kQueuePush, {"q"}, {"1"});
  EXPECT_FALSE(s.IsAnswered(gone));
  EXPECT_EQ(s.Do(V::kQueueLen, {"q"}).number, 1);
  EXPECT_EQ(s.store.NextDeadline(), std::nullopt);
}

TEST(KvStoreWaitTest, ClearAbortsAllThatWaitAndForgetsAllKeys) {
  TestStore s;
  s.Do(V::kSet, {"k"}, {"v"});
  s.Do(V::kQueuePush, {"q"}, {"v"});
  const StoreTicket ticket = s.Wait(V::kGet, {"never"});
  s.Clear(RoundId{2});
  EXPECT_EQ(
      s.AnswerTo(ticket).status,
      absl::AbortedError("the store operation belongs to round 1, but the run is in round 2"));
  StoreOp check = MakeOp(V::kCheck, {"k"});
  check.round = RoundId{2};
  EXPECT_EQ(s.Do(check).number, 0);
  check.verb = V::kQueueLen;
  check.keys = {"q"};
  EXPECT_EQ(s.Do(check).number, 0);
  EXPECT_EQ(s.store.NextDeadline(), std::nullopt);
}

TEST(KvStoreWaitTest, WaitersAreLimited) {
  TestStore s({.waiters_max = 2});
  s.Wait(V::kGet, {"k"});
  s.Wait(V::kGet, {"k"});
  EXPECT_EQ(s.AnswerTo(s.Wait(V::kGet, {"k"})).status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ddprun
