// SPDX-License-Identifier: Apache-2.0
// Several services with one journal in etcd, at random: leases expire unnoticed, answers are lost
// after the write, services end at any moment, and others act between any two steps. Whatever
// happens, the next leader finds each acknowledged record once and in order, and nothing of a
// leader that was replaced. DDPRUN_FAILOVER_SEEDS: how many runs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "rendezvous/etcd/etcd_log.h"
#include "rendezvous/etcd/leader_key.h"
#include "tests/testing/fake_etcd.h"

namespace ddprun {
namespace {

constexpr int kServices = 3;
constexpr int kSteps = 60;
constexpr std::size_t kValueBytes = 24;
// A service that acts between two steps of another one may itself be interrupted once.
constexpr int kDepthMax = 2;

struct Service {
  int number = 0;
  bool is_busy = false;
  std::int64_t lease = 0;
  std::unique_ptr<EtcdLog> log;      // while it believes to lead
  std::int64_t revision = 0;         // at which it began to
  std::vector<std::string> records;  // its state: what it has read and written
  int snapshot_parts_left = -1;      // -1: it writes no snapshot
  std::vector<std::string> snapshot;
};

class Failover {
 public:
  explicit Failover(unsigned seed) : random_(seed) {
    etcd_.next_fault = [this] {
      const int n = Below(40);
      if (n == 0) return FakeEtcd::Fault::kNotReached;
      if (n == 1) return FakeEtcd::Fault::kLost;
      return n < 6 ? FakeEtcd::Fault::kRepeated : FakeEtcd::Fault::kNone;
    };
    etcd_.between = [this] {
      if (depth_ < kDepthMax && Below(12) == 0) Act();
    };
    for (int i = 0; i < kServices; ++i) services_[i].number = i;
  }

  void Run() {
    for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) Act();
    // In the end one leads, whatever was left behind.
    etcd_.next_fault = [] { return FakeEtcd::Fault::kNone; };
    etcd_.between = [] {};
    for (Service& service : services_) Die(service);
    TryToBecomeLeader(services_[0]);
    EXPECT_NE(services_[0].log, nullptr);
  }

  int leaders() const { return leaders_; }
  int acknowledged() const { return acknowledged_total_; }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void Act() {
    Service& service = services_[Below(kServices)];
    if (service.is_busy) {
      // It hangs in a call; its lease may expire meanwhile.
      if (Below(2) == 0) etcd_.RevokeLease(service.lease).IgnoreError();
      return;
    }
    service.is_busy = true;
    ++depth_;
    switch (Below(10)) {
      case 0:
        Die(service);
        break;
      case 1:
        etcd_.RevokeLease(service.lease).IgnoreError();
        break;
      default:
        if (service.log == nullptr) {
          TryToBecomeLeader(service);
        } else if (service.snapshot_parts_left >= 0 || Below(5) == 0) {
          TakeSnapshotStep(service);
        } else {
          Write(service);
        }
    }
    --depth_;
    service.is_busy = false;
  }

  void Die(Service& service) {
    etcd_.RevokeLease(service.lease).IgnoreError();
    service = {.number = service.number, .is_busy = service.is_busy};
  }

  void TryToBecomeLeader(Service& service) {
    etcd_.RevokeLease(service.lease).IgnoreError();
    service.lease = etcd_.GrantLease(std::chrono::seconds(2))->id;
    const auto leader = TryToLead(etcd_, "p", service.lease, absl::StrCat(service.number));
    if (!leader.ok() || leader->lease != service.lease) return;
    std::vector<std::string> found;
    auto log = EtcdLog::Open(
        etcd_, {"p", leader->revision},
        {[&](absl::string_view part) {
           for (const absl::string_view record : absl::StrSplit(part, ' ', absl::SkipEmpty()))
             found.emplace_back(record);
           return absl::OkStatus();
         },
         [&](absl::string_view record) {
           found.emplace_back(record);
           return absl::OkStatus();
         }},
        kValueBytes);
    // While it read, another one may have begun to lead and to delete what it reads.
    const bool leads = etcd_.entries().count("p/leader") > 0 &&
                       etcd_.entries().at("p/leader").create_revision == leader->revision;
    if (!leads) return;
    if (absl::IsUnavailable(log.status())) return;
    ASSERT_TRUE(log.ok()) << log.status();
    CheckFound(found);
    if (testing::Test::HasFailure()) return;
    ++leaders_;
    service.log = *std::move(log);
    service.revision = leader->revision;
    service.records = found;
    service.snapshot_parts_left = -1;
    acknowledged_ = found;
    newest_ = leader->revision;
    unanswered_.clear();
  }

  // All that was acknowledged, then perhaps some of what the last leader wrote without an answer.
  void CheckFound(const std::vector<std::string>& found) {
    const std::string all = absl::StrJoin(found, " ");
    ASSERT_GE(found.size(), acknowledged_.size()) << all;
    for (std::size_t i = 0; i < acknowledged_.size(); ++i)
      ASSERT_EQ(found[i], acknowledged_[i]) << all;
    const std::size_t more = found.size() - acknowledged_.size();
    ASSERT_LE(more, unanswered_.size()) << all;
    for (std::size_t i = 0; i < more; ++i)
      ASSERT_EQ(found[acknowledged_.size() + i], unanswered_[i]) << all;
  }

  void Write(Service& service) {
    std::vector<std::string> records;
    for (int i = Below(3); i >= 0; --i) {
      records.push_back(absl::StrCat("s", service.number, "-", ++last_record_,
                                     std::string(Below(4) == 0 ? 40 : 0, 'x')));
    }
    if (service.revision == newest_)
      unanswered_.insert(unanswered_.end(), records.begin(), records.end());
    const absl::Status status = service.log->Write(records);
    if (!status.ok()) {
      // As a service does: it ends, or stands by.
      service.log.reset();
      return;
    }
    ASSERT_EQ(service.revision, newest_) << "a leader that was replaced wrote";
    acknowledged_.insert(acknowledged_.end(), records.begin(), records.end());
    acknowledged_total_ += static_cast<int>(records.size());
    unanswered_.clear();
    service.records.insert(service.records.end(), records.begin(), records.end());
  }

  void TakeSnapshotStep(Service& service) {
    absl::Status status;
    if (service.snapshot_parts_left < 0) {
      service.snapshot = service.records;
      status = service.log->BeginSnapshot();
      service.snapshot_parts_left = 2;
    } else if (service.snapshot_parts_left > 0) {
      const std::size_t half = service.snapshot.size() / 2;
      const bool is_first = service.snapshot_parts_left-- == 2;
      const auto begin =
          service.snapshot.begin() + static_cast<std::ptrdiff_t>(is_first ? 0 : half);
      const auto end = is_first ? service.snapshot.begin() + static_cast<std::ptrdiff_t>(half)
                                : service.snapshot.end();
      status = service.log->AddPart(absl::StrJoin(begin, end, " "));
    } else {
      service.snapshot_parts_left = -1;
      status = service.log->SetSnapshot();
      if (status.ok()) status = service.log->DeleteOld();
    }
    if (absl::IsFailedPrecondition(status)) service.log.reset();
    if (!status.ok()) service.snapshot_parts_left = -1;
  }

  std::minstd_rand random_;
  FakeEtcd etcd_;
  Service services_[kServices];
  int depth_ = 0;
  int last_record_ = 0;
  std::int64_t newest_ = 0;                // the revision of the last leader that has read all
  std::vector<std::string> acknowledged_;  // since the beginning
  std::vector<std::string> unanswered_;    // that it wrote last
  int leaders_ = 0;
  int acknowledged_total_ = 0;
};

TEST(EtcdFailoverTest, LosesNothingThatWasAcknowledged) {
  const char* const wanted = std::getenv("DDPRUN_FAILOVER_SEEDS");
  const int seeds = wanted != nullptr ? std::atoi(wanted) : 2000;
  int leaders = 0;
  int acknowledged = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Failover failover(static_cast<unsigned>(seed));
    failover.Run();
    if (HasFailure()) return;
    leaders += failover.leaders();
    acknowledged += failover.acknowledged();
  }
  // So that the runs are about something.
  EXPECT_GT(leaders, 3 * seeds);
  EXPECT_GT(acknowledged, 10 * seeds);
  RecordProperty("leaders", leaders);
  RecordProperty("acknowledged", acknowledged);
}

}  // namespace
}  // namespace ddprun
