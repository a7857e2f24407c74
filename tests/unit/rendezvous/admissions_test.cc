// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/admissions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr StoreWorker kFirst{3};
constexpr StoreWorker kSecond{4};

TcpConnection From(const std::string& address) { return {address, 4711, "10.0.0.1", 29400}; }

class AdmissionsTest : public ::testing::Test {
 protected:
  // What is decided about kFirst, which has connected.
  Admissions::Decision After(OwnerAnswer answer) {
    EXPECT_FALSE(core_.Add(kFirst, From("10.0.0.2"), now_).has_value());
    answer.id = static_cast<std::uint64_t>(kFirst);
    const auto decision = core_.Receive(answer);
    EXPECT_TRUE(decision.has_value() && decision->worker == kFirst);
    EXPECT_FALSE(core_.NextDeadline().has_value());
    return *decision;
  }

  Admissions core_;
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(AdmissionsTest, EachIsAskedAboutOnce) {
  core_.Add(kFirst, From("10.0.0.2"), now_);
  EXPECT_THAT(core_.TakeQueries(),
              ElementsAre(OwnerQuery{.id = 3, .connection = From("10.0.0.2")}));
  core_.Add(kSecond, From("10.0.0.2"), now_);
  EXPECT_THAT(core_.TakeQueries(), SizeIs(1));
  EXPECT_THAT(core_.TakeQueries(), IsEmpty());
  core_.AskAgain();
  EXPECT_THAT(core_.TakeQueries(), SizeIs(2));
}

TEST_F(AdmissionsTest, AnAnswerAdmitsOrRefusesWithItsReason) {
  const Admissions::Decision own = After({.ownership = Ownership::kOwn, .host = "b"});
  EXPECT_TRUE(own.admitted);
  EXPECT_EQ(own.notice, "");
  const Admissions::Decision other =
      After({.ownership = Ownership::kOtherUser, .user = 1001, .host = "b"});
  EXPECT_FALSE(other.admitted);
  EXPECT_EQ(other.notice,
            "refused a connection from 10.0.0.2 to the workers' store: it is of user 1001 of host "
            "b");
  const Admissions::Decision none = After({.ownership = Ownership::kNone});
  EXPECT_FALSE(none.admitted);
  EXPECT_THAT(none.notice, HasSubstr("no process on another node of this run has it"));
  const Admissions::Decision late = After({.ownership = Ownership::kNoReply, .host = "b"});
  EXPECT_FALSE(late.admitted);
  EXPECT_THAT(late.notice, HasSubstr("host b did not say within 4 s which user it is of"));
  const Admissions::Decision unknown = After({.ownership = Ownership::kUnknown, .host = "b"});
  EXPECT_TRUE(unknown.admitted);
  EXPECT_THAT(unknown.notice, HasSubstr("let in a connection from 10.0.0.2 to the workers' store "
                                        "although host b cannot see which user it is of"));
}

TEST_F(AdmissionsTest, WithoutAnAnswerItIsRefused) {
  core_.Add(kFirst, From("10.0.0.2"), now_);
  core_.Add(kSecond, From("10.0.0.2"), now_ + std::chrono::seconds(1));
  EXPECT_EQ(core_.NextDeadline(), now_ + kOwnerTimeout);
  const auto decisions = core_.Tick(now_ + kOwnerTimeout);
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].worker, kFirst);
  EXPECT_FALSE(decisions[0].admitted);
  EXPECT_THAT(decisions[0].notice, HasSubstr("the rendezvous service did not say within 5 s"));
  EXPECT_FALSE(core_.Receive({.id = 3, .ownership = Ownership::kOwn}).has_value()) << "too late";
}

TEST_F(AdmissionsTest, OneThatHasDisconnectedIsForgotten) {
  core_.Add(kFirst, From("10.0.0.2"), now_);
  core_.Remove(kFirst);
  EXPECT_THAT(core_.TakeQueries(), IsEmpty());
  EXPECT_FALSE(core_.Receive({.id = 3, .ownership = Ownership::kOwn}).has_value());
  EXPECT_THAT(core_.Tick(now_ + kOwnerTimeout), IsEmpty());
}

TEST_F(AdmissionsTest, TheEndOfARoundEndsThemAll) {
  core_.Add(kFirst, From("10.0.0.2"), now_);
  core_.Add(kSecond, From("10.0.0.2"), now_);
  EXPECT_THAT(core_.TakeAll(), ElementsAre(kFirst, kSecond));
  EXPECT_THAT(core_.TakeAll(), IsEmpty());
}

TEST_F(AdmissionsTest, OneAddressDoesNotTakeAllPlaces) {
  std::uint64_t worker = 0;
  for (std::size_t i = 0; i < kAdmissionsPerAddressMax; ++i)
    EXPECT_FALSE(core_.Add(StoreWorker{++worker}, From("10.0.0.2"), now_).has_value());
  const auto refused = core_.Add(StoreWorker{++worker}, From("10.0.0.2"), now_);
  ASSERT_TRUE(refused.has_value());
  EXPECT_FALSE(refused->admitted);
  EXPECT_THAT(refused->notice, HasSubstr("1024 connections wait already"));
  EXPECT_FALSE(core_.Add(StoreWorker{++worker}, From("10.0.0.3"), now_).has_value());
  core_.Remove(StoreWorker{1});
  EXPECT_FALSE(core_.Add(StoreWorker{++worker}, From("10.0.0.2"), now_).has_value());
  for (int i = 0; worker < 2 * kAdmissionsMax; ++i)
    core_.Add(StoreWorker{++worker}, From(absl::StrCat("10.1.0.", i)), now_);
  EXPECT_THAT(core_.TakeQueries(), SizeIs(kAdmissionsMax));
}

}  // namespace
}  // namespace ddprun
