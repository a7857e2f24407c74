// SPDX-License-Identifier: Apache-2.0
// Which nodes the service asks about a connection to the workers' TCPStore, and what their answers
// mean for it.
#include "rendezvous/store/connection_owners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr LinkId kStore{1};
constexpr LinkId kB{2};
constexpr LinkId kC{3};
constexpr LinkId kD{4};

// Nodes a (which has the store), b and c, and the core that asks them.
class ConnectionOwnersTest : public ::testing::Test {
 protected:
  ConnectionOwnersTest() {
    Add(kStore, "a", {"10.0.0.1", "172.17.0.1"});
    Add(kB, "b", {"10.0.0.2", "172.17.0.2"}, "10.0.0.2");
    Add(kC, "c", {"10.0.0.3", "172.17.0.2"}, "192.0.2.3");
  }

  void Add(LinkId link, const std::string& host, std::vector<std::string> addresses,
           const std::string& seen = "") {
    Join join;
    join.host = host;
    join.addresses = std::move(addresses);
    core_.Add(link, join, seen);
  }

  void Take(ConnectionOwners::Directives directives) {
    asked_.clear();
    answers_.clear();
    refused_.clear();
    for (const SendDirective& send : directives) {
      if (const auto* queries = std::get_if<OwnerQueries>(&send.directive)) {
        for (const OwnerQuery& query : queries->queries) asked_.push_back({send.link, query});
      } else if (const auto* answers = std::get_if<OwnerAnswers>(&send.directive)) {
        EXPECT_EQ(send.link, kStore);
        for (const OwnerAnswer& answer : answers->answers) answers_.push_back(answer);
      } else {
        refused_.push_back({send.link, std::get<ConnectionRefused>(send.directive)});
      }
    }
  }
  static OwnerQuery Query(const std::string& client, std::uint64_t id = 7) {
    return {.id = id,
            .connection = {.client_address = client,
                           .client_port = 4711,
                           .server_address = "10.0.0.1",
                           .server_port = 29400}};
  }
  void Asks(const std::string& client, std::uint64_t id = 7) {
    Take(core_.Ask(kStore, {{Query(client, id)}}, now_));
  }
  void Answers(LinkId link, Ownership ownership, std::optional<std::int64_t> user = std::nullopt) {
    OwnerAnswers answers;
    for (const auto& [to, query] : open_) {
      if (to == link) answers.answers.push_back({query.id, ownership, user, ""});
    }
    Take(core_.Receive(link, answers, now_));
  }
  // Whom, since the last event.
  std::vector<LinkId> Asked() {
    std::vector<LinkId> links;
    for (const auto& [link, query] : asked_) {
      links.push_back(link);
      open_.emplace_back(link, query);
    }
    return links;
  }
  static OwnerAnswer Answer(Ownership ownership, const std::string& host = "",
                            std::optional<std::int64_t> user = std::nullopt) {
    return {7, ownership, user, host};
  }

  ConnectionOwners core_;
  TimePoint now_{std::chrono::hours(1)};
  std::vector<std::pair<LinkId, OwnerQuery>> asked_, open_;
  std::vector<OwnerAnswer> answers_;
  std::vector<std::pair<LinkId, ConnectionRefused>> refused_;
};

TEST_F(ConnectionOwnersTest, TheNodeWithTheAddressIsAskedAndItsYesAdmits) {
  Asks("10.0.0.2");
  EXPECT_THAT(Asked(), ElementsAre(kB));
  EXPECT_EQ(asked_[0].second.connection, Query("10.0.0.2").connection);
  EXPECT_TRUE(asked_[0].second.from_seen_address);
  Answers(kB, Ownership::kOwn);
  EXPECT_THAT(answers_, ElementsAre(Answer(Ownership::kOwn, "b")));
  EXPECT_THAT(refused_, IsEmpty());
  EXPECT_FALSE(core_.NextDeadline().has_value());
}

TEST_F(ConnectionOwnersTest, AnotherUserOfThatHostIsRefusedThereToo) {
  Asks("10.0.0.2");
  EXPECT_THAT(Asked(), ElementsAre(kB));
  Answers(kB, Ownership::kOtherUser, 1001);
  EXPECT_THAT(answers_, ElementsAre(Answer(Ownership::kOtherUser, "b", 1001)));
  ASSERT_THAT(refused_, SizeIs(1));
  EXPECT_EQ(refused_[0].first, kB);
  EXPECT_EQ(refused_[0].second, (ConnectionRefused{Query("10.0.0.2").connection, 1001}));
}

TEST_F(ConnectionOwnersTest, AnAddressThatSeveralNodesNameProvesNothing) {
  Asks("172.17.0.2");
  EXPECT_THAT(Asked(), UnorderedElementsAre(kB, kC));
  EXPECT_FALSE(asked_[0].second.from_seen_address);
  Answers(kB, Ownership::kNone);
  EXPECT_THAT(answers_, IsEmpty()) << "c may have it";
  Answers(kC, Ownership::kNone);
  EXPECT_THAT(Asked(), IsEmpty()) << "all others have been asked";
  EXPECT_THAT(answers_, ElementsAre(Answer(Ownership::kNone)));
  EXPECT_THAT(refused_, SizeIs(2));
}

TEST_F(ConnectionOwnersTest, OneOfSeveralNodesThatNameItHasIt) {
  Asks("172.17.0.2");
  EXPECT_THAT(Asked(), UnorderedElementsAre(kB, kC));
  Answers(kB, Ownership::kUnknown);
  EXPECT_THAT(answers_, IsEmpty());
  Answers(kC, Ownership::kOwn);
  EXPECT_THAT(answers_, ElementsAre(Answer(Ownership::kOwn, "c")));
}

TEST_F(ConnectionOwnersTest, ANodeIsAlsoAskedAboutTheAddressAtWhichItIsSeen) {
  Asks("192.0.2.3");
  EXPECT_THAT(Asked(), ElementsAre(kC));
  EXPECT_TRUE(asked_[0].second.from_seen_address);
}

TEST_F(ConnectionOwnersTest, OneThatCannotSeeIsBelievedToHaveIt) {
  Asks("10.0.0.2");
  EXPECT_THAT(Asked(), ElementsAre(kB));
  Answers(kB, Ownership::kUnknown);
  EXPECT_THAT(answers_, ElementsAre(Answer(Ownership::kUnknown, "b")));
}

TEST_F(ConnectionOwnersTest, AnUnknownAddressIsAskedOfAllButNotBelievedOfOneThatCannotSee) {
  Asks("10.9.9.9");
  EXPECT_THAT(Asked(), UnorderedElementsAre(kB, kC));
  Answers(kB, Ownership::kUnknown);
  Answers(kC, Ownership::kNone);
  EXPECT_THAT(answers_, ElementsAre(Answer(Ownership::kNone)));
  EXPECT_THAT(refused_, IsEmpty()) << "it did not come from their hosts";
}

TEST_F(ConnectionOwnersTest, AnAddressThatHasMovedToAnotherNodeIsFoundThere) {
  Asks("10.0.0.2");
  EXPECT_THAT(Asked(), ElementsAre(kB));
  Answers(kB, Ownership::kNone);
  EXPECT_THAT(Asked(), ElementsAre(kC));
  Answers(kC, Ownership::kOwn);
  EXPECT_THAT(answers_, ElementsAre(Answer(Ownership::kOwn, "c")));
}

TEST_F(ConnectionOwnersTest, AllAreAskedOnceASecondAboutSeveral) {
  Asks("10.9.9.1", 1);
  EXPECT_THAT(asked_, SizeIs(2));
  Asks("10.9.9.2", 2);
  Asks("10.9.9.3", 3);
  EXPECT_THAT(asked_, IsEmpty());
  EXPECT_EQ(core_.NextDeadline(), now_ + kAskAllInterval);
  now_ += kAskAllInterval;
  Take(core_.Tick(now_));
  EXPECT_THAT(asked_, SizeIs(4));
}

TEST_F(ConnectionOwnersTest, TheNodeThatHasTheFirstConnectionIsAskedAboutTheOthersOfTheAddress) {
  Take(core_.Ask(kStore, {{Query("10.9.9.1", 1), Query("10.9.9.1", 2), Query("10.9.9.2", 3)}},
                 now_));
  EXPECT_THAT(Asked(), UnorderedElementsAre(kB, kC, kB, kC)) << "about one of each address";
  Answers(kC, Ownership::kOwn);
  EXPECT_THAT(answers_, SizeIs(2));
  open_.clear();
  EXPECT_THAT(Asked(), ElementsAre(kC));
  Answers(kC, Ownership::kOtherUser, 1001);
  EXPECT_THAT(answers_, ElementsAre(OwnerAnswer{2, Ownership::kOtherUser, 1001, "c"}));
  Asks("10.9.9.1");
  EXPECT_THAT(asked_, ElementsAre(Pair(kC, _))) << "now it is known";
  Take(core_.Remove(kC, now_));
  now_ += kAskAllInterval;
  Take(core_.Tick(now_));
  EXPECT_THAT(asked_, ElementsAre(Pair(kB, _)));
}

TEST_F(ConnectionOwnersTest, AFloodOfOneUnknownAddressDelaysNoOther) {
  OwnerQueries flood;
  for (std::size_t i = 0; i < kAdmissionsPerAddressMax; ++i)
    flood.queries.push_back(Query("10.9.9.9", i));
  Take(core_.Ask(kStore, flood, now_));
  EXPECT_THAT(asked_, SizeIs(2));
  now_ += kAskAllInterval;
  Asks("10.9.9.1", 100'000);
  EXPECT_THAT(asked_, SizeIs(4));
}

TEST_F(ConnectionOwnersTest, AFloodOfUnknownAddressesIsAskedInParts) {
  OwnerQueries flood;
  for (std::size_t i = 0; i < 3 * kAskAllConnectionsMax; ++i)
    flood.queries.push_back(Query(absl::StrCat("10.9.", i / 250, ".", i % 250), i));
  Take(core_.Ask(kStore, flood, now_));
  EXPECT_THAT(asked_, SizeIs(2 * kAskAllConnectionsMax));
  now_ += kOwnerReplyTimeout;
  Take(core_.Tick(now_));
  EXPECT_THAT(answers_, SizeIs(3 * kAskAllConnectionsMax));
  EXPECT_FALSE(core_.NextDeadline().has_value());
}

TEST_F(ConnectionOwnersTest, QueriesAreBounded) {
  OwnerQueries flood;
  for (std::size_t i = 0; i < kOwnerQueriesMax + 10; ++i)
    flood.queries.push_back(Query("10.0.0.2", i));
  Take(core_.Ask(kStore, flood, now_));
  EXPECT_THAT(asked_, SizeIs(kOwnerQueriesMax));
}

TEST_F(ConnectionOwnersTest, ANodeThatDoesNotReplyIsNamed) {
  Asks("10.0.0.2");
  now_ += kOwnerReplyTimeout;
  EXPECT_EQ(core_.NextDeadline(), now_);
  Take(core_.Tick(now_));
  EXPECT_THAT(answers_, ElementsAre(Answer(Ownership::kNoReply, "b")));
}

TEST_F(ConnectionOwnersTest, ANodeThatLeavesIsNotWaitedFor) {
  Asks("10.0.0.2");
  EXPECT_THAT(Asked(), ElementsAre(kB));
  Take(core_.Remove(kB, now_));
  EXPECT_THAT(Asked(), ElementsAre(kC)) << "the others may have its address now";
  Take(core_.Remove(kC, now_));
  EXPECT_THAT(answers_, ElementsAre(Answer(Ownership::kNone)));
  Asks("10.0.0.2");
  EXPECT_THAT(answers_, ElementsAre(Answer(Ownership::kNone))) << "there is no other node";
}

TEST_F(ConnectionOwnersTest, QueriesOfAStoreThatIsGoneEnd) {
  Asks("10.0.0.2");
  Take(core_.Remove(kStore, now_));
  EXPECT_TRUE(core_.empty());
}

TEST_F(ConnectionOwnersTest, OnlyANodeThatWasAskedAnswers) {
  Add(kD, "d", {"10.0.0.4"});
  Asks("10.0.0.2");
  EXPECT_THAT(Asked(), ElementsAre(kB));
  const OwnerAnswers forged{{{open_[0].second.id, Ownership::kOwn, std::nullopt, ""}}};
  Take(core_.Receive(kD, forged, now_));
  EXPECT_THAT(answers_, IsEmpty());
}

TEST_F(ConnectionOwnersTest, AddressesAreComparedWithoutScopeAndMapping) {
  Add(kD, "d", {"fe80::4"}, "::ffff:192.0.2.4");
  Asks("fe80::4%eth0");
  EXPECT_THAT(Asked(), ElementsAre(kD));
  Asks("192.0.2.4");
  EXPECT_THAT(Asked(), ElementsAre(kD));
}

}  // namespace
}  // namespace ddprun
