// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/etcd/etcd_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rendezvous/etcd/etcd_address.h"
#include "rendezvous/etcd/leader_key.h"
#include "tests/testing/fake_etcd.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EtcdLogTest : public testing::Test {
 protected:
  // A new leader, in place of the last one.
  LeaderFence Lead(const std::string& address = "a:1") {
    if (lease_ != 0) etcd_.RevokeLease(lease_).IgnoreError();
    lease_ = etcd_.GrantLease(std::chrono::seconds(2))->id;
    const auto leader = TryToLead(etcd_, "p", lease_, address);
    EXPECT_TRUE(leader.ok()) << leader.status();
    EXPECT_EQ(leader->lease, lease_);
    return {"p", leader->revision};
  }

  absl::StatusOr<std::unique_ptr<EtcdLog>> Open(const LeaderFence& fence,
                                                std::size_t value_bytes_max = 16) {
    parts_.clear();
    records_.clear();
    return EtcdLog::Open(etcd_, fence,
                         {[this](absl::string_view part) {
                            parts_.emplace_back(part);
                            return absl::OkStatus();
                          },
                          [this](absl::string_view record) {
                            records_.emplace_back(record);
                            return absl::OkStatus();
                          }},
                         value_bytes_max);
  }

  FakeEtcd etcd_;
  std::int64_t lease_ = 0;
  std::vector<std::string> parts_;
  std::vector<std::string> records_;
};

TEST_F(EtcdLogTest, ReadsBackWhatWasWritten) {
  const auto log = *Open(Lead());
  const std::string large(100, 'x');
  ASSERT_TRUE(log->Write({"one", "", large}).ok());
  ASSERT_TRUE(log->Write({"two"}).ok());
  for (const auto& [key, entry] : etcd_.entries()) EXPECT_LE(entry.value.size(), 16u) << key;
  const auto again = *Open(Lead());
  EXPECT_THAT(records_, ElementsAre("one", "", large, "two"));
  EXPECT_EQ(again->bytes(), log->bytes());
  EXPECT_EQ(again->values(), log->values());
  ASSERT_TRUE(again->Write({"three"}).ok());
  ASSERT_TRUE(Open(Lead()).ok());
  EXPECT_THAT(records_, ElementsAre("one", "", large, "two", "three"));
}

TEST_F(EtcdLogTest, ASnapshotReplacesTheRecordsBeforeIt) {
  const auto log = *Open(Lead());
  ASSERT_TRUE(log->Write({"one", "two"}).ok());
  for (const char* const part : {"first", "second"}) {
    ASSERT_TRUE(log->BeginSnapshot().ok());
    ASSERT_TRUE(log->AddPart("a part that is longer than a value").ok());
    ASSERT_TRUE(log->Write({"between"}).ok());
    ASSERT_TRUE(log->AddPart(part).ok());
    ASSERT_TRUE(log->SetSnapshot().ok());
    ASSERT_TRUE(log->DeleteOld().ok());
    const auto again = *Open({"p", etcd_.entries().at("p/leader").create_revision});
    EXPECT_THAT(parts_, ElementsAre("a part that is longer than a value", part));
    EXPECT_THAT(records_, ElementsAre("between"));
    EXPECT_EQ(again->bytes(), log->bytes());
    EXPECT_EQ(again->values(), log->values());
  }
}

TEST_F(EtcdLogTest, ASnapshotThatWasNotFinishedIsIgnored) {
  auto log = *Open(Lead());
  ASSERT_TRUE(log->Write({"one"}).ok());
  ASSERT_TRUE(log->BeginSnapshot().ok());
  ASSERT_TRUE(log->AddPart("left over").ok());
  log = *Open(Lead());
  EXPECT_THAT(parts_, ElementsAre());
  EXPECT_THAT(records_, ElementsAre("one"));
  ASSERT_TRUE(log->BeginSnapshot().ok());
  ASSERT_TRUE(log->AddPart("new").ok());
  ASSERT_TRUE(log->SetSnapshot().ok());
  ASSERT_TRUE(Open(Lead()).ok());
  EXPECT_THAT(parts_, ElementsAre("new"));
}

TEST_F(EtcdLogTest, ALeaderThatWasReplacedWritesNothing) {
  const auto old = *Open(Lead("a:1"));
  const auto now = *Open(Lead("b:1"));
  const absl::Status status = old->Write({"late"});
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the service at b:1 leads now"));
  EXPECT_TRUE(absl::IsFailedPrecondition(old->DeleteOld()));
  ASSERT_TRUE(now->Write({"right"}).ok());
  ASSERT_TRUE(Open(Lead()).ok());
  EXPECT_THAT(records_, ElementsAre("right"));
}

TEST_F(EtcdLogTest, ALeaderWhoseLeaseExpiredWritesNothing) {
  const auto log = *Open(Lead());
  ASSERT_TRUE(etcd_.RevokeLease(lease_).ok());
  const absl::Status status = log->Write({"late"});
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("lease in etcd has expired"));
}

TEST_F(EtcdLogTest, ALostAnswerIsNoSecondRecord) {
  const auto log = *Open(Lead());
  etcd_.next_fault = [] { return FakeEtcd::Fault::kRepeated; };
  ASSERT_TRUE(log->Write({"one", "a second one that is long"}).ok());
  etcd_.next_fault = [] { return FakeEtcd::Fault::kNone; };
  ASSERT_TRUE(Open(Lead()).ok());
  EXPECT_THAT(records_, ElementsAre("one", "a second one that is long"));
}

TEST_F(EtcdLogTest, LeadingIsKnownAlthoughTheAnswerWasLost) {
  etcd_.next_fault = [] { return FakeEtcd::Fault::kRepeated; };
  Lead();
}

TEST_F(EtcdLogTest, TheEndOfARecordThatWasNeverWrittenIsDropped) {
  const auto log = *Open(Lead());
  int writes = 0;
  etcd_.next_fault = [&] {
    return ++writes == 2 ? FakeEtcd::Fault::kNotReached : FakeEtcd::Fault::kNone;
  };
  EXPECT_TRUE(absl::IsUnavailable(log->Write({std::string(100, 'x')})));
  const auto again = *Open(Lead());
  EXPECT_THAT(records_, ElementsAre());
  ASSERT_TRUE(again->Write({"next"}).ok());
  ASSERT_TRUE(Open(Lead()).ok());
  EXPECT_THAT(records_, ElementsAre("next"));
}

TEST_F(EtcdLogTest, DamageIsNamed) {
  const auto log = *Open(Lead());
  ASSERT_TRUE(log->Write({"one"}).ok());
  ASSERT_TRUE(log->Write({"two"}).ok());
  const std::string first = "p/records/0000000000000001";
  const EtcdEntry entry = etcd_.entries().at(first);
  const auto complaint = [&] {
    return std::string(
        Open({"p", etcd_.entries().at("p/leader").create_revision}).status().message());
  };
  etcd_.entries().erase(first);
  EXPECT_THAT(complaint(), HasSubstr("the key p/records/0000000000000001 is missing"));
  for (const char* const value : {"", "?", "+more", "R\xff\xff\xff\xff"}) {
    etcd_.entries()[first] = {first, value, entry.create_revision, 0};
    EXPECT_THAT(complaint(), HasSubstr("the journal in etcd is damaged")) << value;
    EXPECT_THAT(complaint(), HasSubstr(first)) << value;
  }
  etcd_.entries()[first] = entry;
  etcd_.entries()["p/snapshot"] = {"p/snapshot", "no numbers", 1, 0};
  EXPECT_THAT(complaint(), HasSubstr("the key p/snapshot names no snapshot"));
}

TEST(EtcdAddressTest, IsParsed) {
  const auto address = ParseEtcdAddress("etcd://e1:2379,[::1]:2379/runs/a/");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_THAT(address->members, ElementsAre("e1:2379", "[::1]:2379"));
  EXPECT_EQ(address->prefix, "runs/a");
  EXPECT_EQ(ParseEtcdAddress("etcd://e1:2379")->prefix, "ddprun");
  EXPECT_TRUE(IsEtcdAddress("etcd://"));
  EXPECT_FALSE(IsEtcdAddress("/var/lib/etcd"));
  for (const char* const wrong : {"etcd://", "etcd:///p", "etcd://e1", "etcd://e1:0", "etcd://:1",
                                  "etcd://e1:2379,", "etcd://e1:65536"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseEtcdAddress(wrong).status())) << wrong;
  }
}

}  // namespace
}  // namespace ddprun
