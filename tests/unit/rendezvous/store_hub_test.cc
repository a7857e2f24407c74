// SPDX-License-Identifier: Apache-2.0
// The service's half of the store: exactly once over a node's streams, and nothing stale.
#include "rendezvous/store/store_hub.h"

#include "tests/unit/rendezvous/store_hub_fixture.h"

namespace ddprun {
namespace {

using V = StoreVerb;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// ---- Exactly once

TEST(StoreHubOnceTest, WhatIsSentAgainIsNotPerformedAgain) {
  TestHub t;
  StorePeer peer = t.Open("a", 1);
  EXPECT_EQ(t.Do(peer, 1, AddOp("n", 5)).result.number, 5);
  t.Do(peer, 2, MakeOp(V::kSet, {"k"}, {"old"}));
  EXPECT_EQ(t.Do(peer, 3, MakeOp(V::kCompareSet, {"k"}, {"old", "new"})).result.values[0], "new");
  t.Do(peer, 4, MakeOp(V::kAppend, {"k"}, {"+"}));
  t.Do(peer, 5, MakeOp(V::kQueuePush, {"q"}, {"one"}));
  EXPECT_EQ(t.Do(peer, 6, MakeOp(V::kQueuePop, {"q"})).result.values[0], "one");
  t.Do(peer, 7, MakeOp(V::kQueuePush, {"q"}, {"two"}));
  t.Gone(peer);
  peer = t.Open("a", 2, {1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(t.Do(peer, 1, AddOp("n", 5)).result.number, 5);
  t.Do(peer, 2, MakeOp(V::kSet, {"k"}, {"old"}));
  EXPECT_EQ(t.Do(peer, 3, MakeOp(V::kCompareSet, {"k"}, {"old", "new"})).result.values[0], "new");
  t.Do(peer, 4, MakeOp(V::kAppend, {"k"}, {"+"}));
  t.Do(peer, 5, MakeOp(V::kQueuePush, {"q"}, {"one"}));
  EXPECT_EQ(t.Do(peer, 6, MakeOp(V::kQueuePop, {"q"})).result.values[0], "one");
  EXPECT_EQ(t.Do(peer, 8, AddOp("n", 0)).result.number, 5);
  EXPECT_EQ(t.Do(peer, 9, MakeOp(V::kGet, {"k"})).result.values[0], "new+");
  EXPECT_EQ(t.Do(peer, 10, MakeOp(V::kQueueLen, {"q"})).result.number, 1);
}

TEST(StoreHubOnceTest, OtherNodesAndClientsWithoutOneHaveIdsOfTheirOwn) {
  TestHub t;
  t.Do(t.Open("a", 1), 1, AddOp("n", 1));
  t.Do(t.Open("b", 1), 1, AddOp("n", 1));
  const StorePeer client = t.Open("a", 0);
  EXPECT_TRUE(t.ended.empty()) << "a client without a node takes no node's place";
  t.Do(client, 1, AddOp("n", 1));
  EXPECT_EQ(t.Do(client, 1, AddOp("n", 1)).result.number, 4);
}

// What a service that is started anew does with what the last one wrote down.
TEST(StoreHubResumeTest, NothingIsAnsweredUntilAllHaveComeBack) {
  TestHub t;
  t.hub.Replay("a", 7, AddOp("n", 5));
  t.hub.Resume({"a", "b"}, t.now);
  t.last_peer = 2;
  const StorePeer a = t.Open("a", 3, {7});
  t.Send(a, 7, AddOp("n", 5));
  t.Send(a, 8, MakeOp(V::kGet, {"n"}));
  t.Send(a, 9, MakeOp(V::kSet, {"k"}, {"v"}));
  EXPECT_THAT(t.Received(a), IsEmpty()) << "b may still read what was";
  t.Open("b", 2);
  std::map<std::uint64_t, StoreReply> replies;
  for (StoreReply& reply : t.Received(a)) replies[reply.id] = reply;
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_EQ(replies[7].result.number, 5) << "not performed again";
  EXPECT_EQ(replies[8].result.values[0], "5");
  EXPECT_EQ(t.Do(a, 10, MakeOp(V::kGet, {"k"})).result.values[0], "v");
}

TEST(StoreHubResumeTest, WhoDoesNotComeBackIsWaitedForAsLongAsItTrusts) {
  TestHub t;
  t.hub.Resume({"a", "b"}, t.now);
  t.last_peer = 2;
  const StorePeer a = t.Open("a", 3);
  t.Send(a, 1, MakeOp(V::kSet, {"k"}, {"v"}));
  EXPECT_THAT(t.Received(a), IsEmpty());
  t.TickAt(*t.hub.NextDeadline());
  EXPECT_TRUE(t.Answer(a).result.status.ok());
}

TEST(StoreHubResumeTest, AnAnswerOfWhichTheOperationIsNotKnownIsGivenAgain) {
  TestHub t;
  StoreResult result;
  result.values = {"popped"};
  t.hub.ReplayAnswer("a", 4, result);
  t.hub.Resume({"a"}, t.now);
  t.last_peer = 1;
  const StorePeer a = t.Open("a", 2, {4});
  t.Received(a);  // it is said at once, and means nothing to a node that has not asked again yet
  EXPECT_EQ(t.Do(a, 4, WaitingOp(V::kQueuePop, {"q"})).result.values[0], "popped");
}

TEST(StoreHubOnceTest, AnAnswerIsForgottenWhenTheNodeHasIt) {
  TestHub t;
  const StorePeer peer = t.Open("a", 1);
  t.Do(peer, 1, AddOp("n", 1));
  t.Took(peer, {1});
  EXPECT_EQ(t.Do(peer, 1, AddOp("n", 1)).result.number, 2);
  // What a new stream does not name is with the node too.
  const StorePeer next = t.Open("a", 2, {});
  EXPECT_EQ(t.Do(next, 1, AddOp("n", 1)).result.number, 3);
}

TEST(StoreHubOnceTest, AWaitingPopThatIsSentAgainIsServedOnce) {
  TestHub t;
  const StorePeer first = t.Open("a", 1);
  t.Send(first, 1, WaitingOp(V::kQueuePop, {"q"}));
  t.Gone(first);
  const StorePeer second = t.Open("a", 2, {1});
  t.Send(second, 1, WaitingOp(V::kQueuePop, {"q"}));
  const StorePeer other = t.Open("b", 1);
  t.Do(other, 1, MakeOp(V::kQueuePush, {"q"}, {"v"}));
  t.Do(other, 2, MakeOp(V::kQueuePush, {"q"}, {"w"}));
  // Served, but the answer is lost on its way.
  t.Gone(second);
  const StorePeer third = t.Open("a", 3, {1});
  EXPECT_EQ(t.Do(third, 1, WaitingOp(V::kQueuePop, {"q"})).result.values[0], "v");
  EXPECT_EQ(t.Do(other, 3, MakeOp(V::kQueueLen, {"q"})).result.number, 1);
}

TEST(StoreHubOnceTest, ALaterStreamTakesTheEarliersPlace) {
  TestHub t;
  const StorePeer old = t.Open("a", 1);
  const StorePeer now = t.Open("a", 2);
  EXPECT_EQ(t.ended.at(old).code(), absl::StatusCode::kAborted);
  // What of the old stream comes late must not be performed: the node has begun anew without it.
  t.Send(old, 1, AddOp("n", 1));
  EXPECT_THAT(t.Received(old), IsEmpty());
  EXPECT_EQ(t.Do(now, 2, AddOp("n", 0)).result.number, 0);
  const StorePeer late = t.Open("a", 1);
  EXPECT_EQ(t.ended.at(late).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(t.Do(now, 3, AddOp("n", 1)).result.number, 1) << "it still has its place";
}

TEST(StoreHubOnceTest, ANewRoundForgetsAll) {
  TestHub t;
  const StorePeer peer = t.Open("a", 1);
  t.Do(peer, 1, AddOp("n", 1));
  t.Send(peer, 2, WaitingOp(V::kGet, {"never"}));
  t.Keep(t.hub.Clear(RoundId{2}));
  EXPECT_EQ(t.Answer(peer).result.status.code(), absl::StatusCode::kAborted);
  StoreOp op = AddOp("n", 1);
  EXPECT_EQ(t.Do(peer, 1, op).result.status.code(), absl::StatusCode::kAborted);
  op.round = RoundId{2};
  EXPECT_EQ(t.Do(peer, 1, op).result.number, 1);
}

TEST(StoreHubOnceTest, TheMemoryHasALimit) {
  TestHub t;
  const StorePeer peer = t.Open("a", 1);
  for (std::uint64_t id = 1; id <= kRememberedAnswersMax; ++id) t.Send(peer, id, AddOp("n", 1));
  t.Received(peer);
  const std::uint64_t next = kRememberedAnswersMax + 1;
  EXPECT_EQ(t.Do(peer, next, AddOp("n", 1)).result.status.code(),
            absl::StatusCode::kResourceExhausted);
  t.Took(peer, {1});
  EXPECT_EQ(t.Do(peer, next, AddOp("n", 1)).result.number, static_cast<std::int64_t>(next));
}

TEST(StoreHubOnceTest, WhatIsWrittenDownMakesTheSameAgain) {
  TestHub t;
  const StorePeer a = t.Open("a", 1);
  const StorePeer b = t.Open("b", 1);
  const StorePeer client = t.Open("", 0);
  t.Send(a, 1, WaitingOp(V::kQueuePop, {"q"}));
  t.Do(b, 1, AddOp("n", 2));
  t.Do(b, 2, MakeOp(V::kQueuePush, {"q"}, {"v"}));  // serves a's pop
  t.Do(b, 3, MakeOp(V::kQueuePush, {"q"}, {"w"}));
  EXPECT_EQ(t.Answer(a).result.values[0], "v");
  t.Do(client, 7, MakeOp(V::kSet, {"k"}, {"1"}));
  t.Do(a, 2, MakeOp(V::kCompareSet, {"k"}, {"1", "2"}));
  t.Do(a, 3, MakeOp(V::kGet, {"k"}));                       // changes nothing
  t.Do(a, 4, MakeOp(V::kQueuePop, {"empty"}));              // neither
  t.Do(a, 5, MakeOp(V::kSet, {"two", "keys"}, {"wrong"}));  // nor this
  std::vector<std::pair<std::string, std::uint64_t>> order;
  for (const auto& entry : t.journal) order.emplace_back(entry.node, entry.id);
  using P = std::pair<std::string, std::uint64_t>;
  EXPECT_THAT(order, ElementsAre(P("b", 1), P("b", 2), P("a", 1), P("b", 3), P("", 0), P("a", 2)));

  TestHub again;
  for (const auto& entry : t.journal) again.hub.Replay(entry.node, entry.id, entry.op);
  EXPECT_TRUE(again.journal.empty()) << "it is written down already";
  const StorePeer back = again.Open("a", 2, {1, 2});
  EXPECT_EQ(again.Do(back, 1, WaitingOp(V::kQueuePop, {"q"})).result.values[0], "v");
  EXPECT_EQ(again.Do(back, 2, MakeOp(V::kCompareSet, {"k"}, {"1", "2"})).result.values[0], "2");
  EXPECT_EQ(again.Do(back, 6, MakeOp(V::kQueueLen, {"q"})).result.number, 1);
  EXPECT_EQ(again.Do(again.Open("b", 2, {1}), 1, AddOp("n", 2)).result.number, 2);
}

// ---- Nothing stale

TEST(StoreHubKeepTest, OnlyWhatIsThereMayBeKept) {
  TestHub t;
  const StorePeer a = t.Open("a", 1);
  t.Do(a, 1, MakeOp(V::kSet, {"k"}, {"v"}));
  t.Do(a, 2, MakeOp(V::kQueuePush, {"q"}, {"v"}));
  EXPECT_TRUE(t.Do(a, 3, MakeOp(V::kGet, {"k"})).keep);
  EXPECT_TRUE(t.Do(a, 4, MakeOp(V::kMultiGet, {"k", "k"})).keep);
  EXPECT_TRUE(t.Do(a, 5, MakeOp(V::kWait, {"k"})).keep);
  EXPECT_TRUE(t.Do(a, 6, MakeOp(V::kCheck, {"k"})).keep);
  EXPECT_FALSE(t.Do(a, 7, MakeOp(V::kCheck, {"k", "absent"})).keep);
  EXPECT_FALSE(t.Do(a, 8, MakeOp(V::kWait, {"q"})).keep) << "a queue comes and goes unseen";
  EXPECT_FALSE(t.Do(a, 9, MakeOp(V::kNumKeys, {})).keep);
  EXPECT_FALSE(t.Do(t.Open("", 0), 1, MakeOp(V::kGet, {"k"})).keep) << "a client without a node";
}

TEST(StoreHubKeepTest, AWriteIsKnownToNobodyBeforeAllHaveForgotten) {
  TestHub t;
  const StorePeer a = t.Open("a", 1);
  const StorePeer b = t.Open("b", 1);
  t.Do(b, 1, MakeOp(V::kSet, {"k"}, {"old"}));
  ASSERT_TRUE(t.Do(a, 1, MakeOp(V::kGet, {"k"})).keep);
  t.Send(b, 2, MakeOp(V::kSet, {"k"}, {"new"}));
  t.Send(b, 3, MakeOp(V::kGet, {"k"}));
  t.Send(b, 4, MakeOp(V::kNumKeys, {}));
  EXPECT_THAT(t.Received(b), IsEmpty());
  const StoreReply forget = t.Answer(a);
  EXPECT_EQ(forget.forget, 1u);
  EXPECT_THAT(forget.result.keys, ElementsAre("k"));
  t.Forgot(a, forget.forget);
  const std::vector<StoreReply> released = t.Received(b);
  ASSERT_EQ(released.size(), 3u);
  EXPECT_EQ(released[0].id, 2u);
  EXPECT_EQ(released[1].result.values[0], "new");
  EXPECT_FALSE(released[1].keep) << "it may be older than what the node was told since";
  EXPECT_TRUE(t.Do(a, 2, MakeOp(V::kGet, {"k"})).keep);
}

TEST(StoreHubKeepTest, AWritersOwnNodeForgetsToo) {
  TestHub t;
  const StorePeer a = t.Open("a", 1);
  t.Do(a, 1, MakeOp(V::kSet, {"k"}, {"old"}));
  t.Do(a, 2, MakeOp(V::kGet, {"k"}));
  t.Send(a, 3, MakeOp(V::kSet, {"k"}, {"new"}));
  EXPECT_EQ(t.Answer(a).forget, 1u);
  t.Forgot(a, 1);
  EXPECT_EQ(t.Answer(a).id, 3u);
}

TEST(StoreHubKeepTest, WhatChangesNothingAsksNobody) {
  TestHub t;
  const StorePeer a = t.Open("a", 1);
  const StorePeer b = t.Open("b", 1);
  t.Do(a, 1, MakeOp(V::kSet, {"k"}, {"text"}));
  t.Do(a, 2, MakeOp(V::kGet, {"k"}));
  t.Do(b, 1, MakeOp(V::kCompareSet, {"k"}, {"other", "new"}));
  EXPECT_FALSE(t.Do(b, 2, AddOp("k", 1)).result.status.ok());
  EXPECT_EQ(t.Do(b, 3, MakeOp(V::kDelete, {"absent"})).result.number, 0);
  EXPECT_THAT(t.Received(a), IsEmpty());
}

TEST(StoreHubKeepTest, AHeldAnswerFindsTheNodesNextStream) {
  TestHub t;
  const StorePeer a = t.Open("a", 1);
  const StorePeer b = t.Open("b", 1);
  t.Do(a, 1, AddOp("n", 1));
  t.Do(a, 2, MakeOp(V::kGet, {"n"}));
  t.Send(b, 1, AddOp("n", 1));
  t.Gone(b);
  const StorePeer again = t.Open("b", 2, {1});
  t.Send(again, 1, AddOp("n", 1));
  EXPECT_THAT(t.Received(again), IsEmpty()) << "performed, but not settled";
  t.Forgot(a, 1);
  EXPECT_EQ(t.Answer(again).result.number, 2);
  EXPECT_EQ(t.Do(again, 2, AddOp("n", 0)).result.number, 2);
}

TEST(StoreHubKeepTest, ALostNodeHoldsUpAWriteOnlyAsLongAsItMayTrustWhatItKeeps) {
  TestHub t;
  const StorePeer a = t.Open("a", 1);
  const StorePeer b = t.Open("b", 1);
  t.Do(a, 1, MakeOp(V::kSet, {"k"}, {"old"}));
  t.Do(a, 2, MakeOp(V::kGet, {"k"}));
  t.Gone(a);
  t.Send(b, 1, MakeOp(V::kSet, {"k"}, {"new"}));
  EXPECT_THAT(t.Received(b), IsEmpty());
  EXPECT_EQ(t.hub.NextDeadline(), t.now + kKeepTrust);
  t.TickAt(t.now + kKeepTrust);
  EXPECT_EQ(t.Answer(b).id, 1u);
}

TEST(StoreHubKeepTest, ANodeThatComesBackHoldsUpNothing) {
  TestHub t;
  const StorePeer a = t.Open("a", 1);
  const StorePeer b = t.Open("b", 1);
  t.Do(a, 1, MakeOp(V::kSet, {"k"}, {"old"}));
  t.Do(a, 2, MakeOp(V::kGet, {"k"}));
  t.Send(b, 1, MakeOp(V::kSet, {"k"}, {"new"}));
  t.Gone(a);
  EXPECT_THAT(t.Received(b), IsEmpty());
  t.Open("a", 2);
  EXPECT_EQ(t.Answer(b).id, 1u);
}

TEST(StoreHubTest, CountsANodesMessages) {
  TestHub t;
  const StorePeer a = t.Open("a", 1);
  t.Do(a, 1, AddOp("n", 1));
  t.Do(t.Open("b", 1), 1, AddOp("n", 1));
  t.Took(a, {1});
  EXPECT_EQ(t.hub.messages("a"), 2u);
}

}  // namespace
}  // namespace ddprun
