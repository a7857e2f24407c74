// SPDX-License-Identifier: Apache-2.0
// The service's half of the store: exactly once over a node's streams.
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

TEST(StoreHubOnceTest, OtherNodesHaveIdsOfTheirOwn) {
  TestHub t;
  t.Do(t.Open("a", 1), 1, AddOp("n", 1));
  EXPECT_EQ(t.Do(t.Open("b", 1), 1, AddOp("n", 1)).result.number, 2);
}

// ---- Spaces

TEST(StoreHubSpacesTest, KeysOfRolesAreApart) {
  TestHub t;
  const StorePeer a = t.Open("n", 1, {}, "actor");
  const StorePeer b = t.Open("n", 1, {}, "learner");
  const StorePeer run = t.Open("n", 1);
  t.Do(a, 1, AddOp("n", 1));
  t.Do(b, 1, AddOp("n", 5));
  t.Do(run, 1, AddOp("n", 7));
  EXPECT_EQ(t.Do(a, 2, AddOp("n", 1)).result.number, 2);
  EXPECT_EQ(t.Do(b, 2, MakeOp(V::kGet, {"n"})).result.values[0], "5");
  EXPECT_THAT(t.Do(b, 3, MakeOp(V::kListKeys, {})).result.keys, ElementsAre("n"));
  EXPECT_EQ(t.Do(b, 4, MakeOp(V::kNumKeys, {})).result.number, 1);
  EXPECT_EQ(t.Do(run, 2, MakeOp(V::kNumKeys, {})).result.number, 3);
  EXPECT_THAT(t.ended, IsEmpty());
}

TEST(StoreHubSpacesTest, WhatIsMissingHasTheNameThatTheWorkerKnows) {
  TestHub t;
  const StorePeer a = t.Open("n", 1, {}, "actor");
  t.Send(a, 1, WaitingOp(V::kGet, {"k"}, std::chrono::seconds(1)));
  t.TickAt(t.now + std::chrono::seconds(2));
  EXPECT_THAT(t.Answer(a).result.keys, ElementsAre("k"));
}

TEST(StoreHubSpacesTest, ANodesOtherNodesShareTheSpaceAndAnAnswerIsOncePerSpace) {
  TestHub t;
  StorePeer a = t.Open("n", 1, {}, "actor");
  t.Do(a, 1, AddOp("n", 1));
  t.Gone(a);
  a = t.Open("n", 2, {1}, "actor");
  EXPECT_EQ(t.Do(a, 1, AddOp("n", 1)).result.number, 1);
  EXPECT_EQ(t.Do(t.Open("m", 1, {}, "actor"), 1, AddOp("n", 1)).result.number, 2);
}

TEST(StoreHubSpacesTest, AServiceThatIsStartedAnewKnowsThem) {
  TestHub before;
  before.Do(before.Open("n", 1, {}, "actor"), 7, AddOp("n", 5));
  ASSERT_EQ(before.journal.size(), 1u);
  TestHub after;
  after.hub.Replay(before.journal[0].node, before.journal[0].id, before.journal[0].op);
  const StorePeer actor = after.Open("n", 2, {7}, "actor");
  EXPECT_EQ(after.Do(actor, 7, AddOp("n", 5)).result.number, 5);
  EXPECT_EQ(after.Do(after.Open("n", 2), 7, AddOp("n", 1)).result.number, 1);
}

// What a service that is started anew does with what the last one wrote down.
TEST(StoreHubResumeTest, WhatWasPerformedIsAnsweredAndNotPerformedAgain) {
  TestHub t;
  t.hub.Replay("a", 7, AddOp("n", 5));
  const StorePeer a = t.Open("a", 3, {7});
  EXPECT_EQ(t.Do(a, 7, AddOp("n", 5)).result.number, 5);
  EXPECT_EQ(t.Do(a, 8, MakeOp(V::kGet, {"n"})).result.values[0], "5");
}

TEST(StoreHubResumeTest, AnAnswerOfWhichTheOperationIsNotKnownIsGivenAgain) {
  TestHub t;
  StoreResult result;
  result.values = {"popped"};
  t.hub.ReplayAnswer("a", 4, result);
  const StorePeer a = t.Open("a", 2, {4});
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
  t.Send(a, 1, WaitingOp(V::kQueuePop, {"q"}));
  t.Do(b, 1, AddOp("n", 2));
  t.Do(b, 2, MakeOp(V::kQueuePush, {"q"}, {"v"}));  // serves a's pop
  t.Do(b, 3, MakeOp(V::kQueuePush, {"q"}, {"w"}));
  EXPECT_EQ(t.Answer(a).result.values[0], "v");
  t.Do(b, 4, MakeOp(V::kSet, {"k"}, {"1"}));
  t.Do(a, 2, MakeOp(V::kCompareSet, {"k"}, {"1", "2"}));
  t.Do(a, 3, MakeOp(V::kGet, {"k"}));                       // changes nothing
  t.Do(a, 4, MakeOp(V::kQueuePop, {"empty"}));              // neither
  t.Do(a, 5, MakeOp(V::kSet, {"two", "keys"}, {"wrong"}));  // nor this
  std::vector<std::pair<std::string, std::uint64_t>> order;
  for (const auto& entry : t.journal) order.emplace_back(entry.node, entry.id);
  using P = std::pair<std::string, std::uint64_t>;
  EXPECT_THAT(order, ElementsAre(P("b", 1), P("b", 2), P("a", 1), P("b", 3), P("b", 4), P("a", 2)));

  TestHub again;
  for (const auto& entry : t.journal) again.hub.Replay(entry.node, entry.id, entry.op);
  EXPECT_TRUE(again.journal.empty()) << "it is written down already";
  const StorePeer back = again.Open("a", 2, {1, 2});
  EXPECT_EQ(again.Do(back, 1, WaitingOp(V::kQueuePop, {"q"})).result.values[0], "v");
  EXPECT_EQ(again.Do(back, 2, MakeOp(V::kCompareSet, {"k"}, {"1", "2"})).result.values[0], "2");
  EXPECT_EQ(again.Do(back, 6, MakeOp(V::kQueueLen, {"q"})).result.number, 1);
  EXPECT_EQ(again.Do(again.Open("b", 2, {1}), 1, AddOp("n", 2)).result.number, 2);
}

// A message of little may ask for much: its peer is to read before more is made.
TEST(StoreHubTest, OneCallMakesRepliesOfAMessageAtMost) {
  TestHub t;
  const StorePeer a = t.Open("a", 1);
  t.Do(a, 1, MakeOp(V::kSet, {"large"}, {std::string(kStoreBatchBytes / 3, 'v')}));
  StoreBatch batch;
  for (std::uint64_t id = 2; id < 9; ++id)
    batch.requests.push_back({id, MakeOp(V::kGet, {"large"})});
  batch.requests.push_back({9, std::nullopt});
  std::vector<std::size_t> calls;
  while (!batch.requests.empty()) {
    t.Keep(t.hub.Receive(a, batch, t.now));
    const std::vector<StoreReply> replies = t.Received(a);
    calls.push_back(replies.size());
    for (const StoreReply& reply : replies)
      EXPECT_EQ(reply.result.values.at(0).bytes(), t.hub.store().values().at("large").bytes());
  }
  EXPECT_THAT(calls, ElementsAre(3, 3, 1));
  EXPECT_EQ(t.hub.messages("a"), 2u);
  batch.requests.push_back({10, MakeOp(V::kGet, {"large"})});
  t.Gone(a);
  t.Keep(t.hub.Receive(a, batch, t.now));
  EXPECT_TRUE(batch.requests.empty()) << "nobody will read it";
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
