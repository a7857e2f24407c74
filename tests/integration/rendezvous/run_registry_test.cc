// SPDX-License-Identifier: Apache-2.0
// How many runs a service has, of whom, and which of them make room for others.
#include "rendezvous/service/run_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/journal/sqlite_journal.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class SilentSink final : public DirectiveSink {
 public:
  void Push(Directive) override {}
  void End() override {}
  void Flush() override {}
};

TimePoint Now() { return std::chrono::steady_clock::now(); }

// A run of one node, so that its round is sealed at once; it is not lost before the longest lease
// that there is.
Join JoinOf(const std::string& run_id) {
  Join join = MakeJoin("a", 1);
  join.run_id = run_id;
  join.lease = kLeaseMax;
  return join;
}

absl::StatusOr<RunRegistry::Place> Begin(RunRegistry& registry, const std::string& run_id,
                                         const std::string& peer = "", TimePoint now = Now()) {
  const Join join = JoinOf(run_id);
  auto place = registry.Admit(join, std::make_shared<SilentSink>(), peer, now);
  if (place.ok()) place->run->Joined(place->link, join, now);
  return place;
}

void Disconnect(RunRegistry& registry, const RunRegistry::Place& place) {
  place.run->Gone(place.link, Now());
  registry.Closed(place);
}

// As many runs as there may be, each of another peer, to none of which a node is connected.
void Fill(RunRegistry& registry) {
  for (std::size_t i = 0; i < kRunsMax; ++i) {
    const auto place = Begin(registry, absl::StrCat("flood-", i), absl::StrCat("peer-", i % 8));
    ASSERT_TRUE(place.ok()) << place.status();
    Disconnect(registry, *place);
  }
}

TEST(RunRegistryTest, RunsThatNoNodeIsConnectedToMakeRoomInSeconds) {
  RunRegistry registry(std::nullopt);
  Fill(registry);
  EXPECT_TRUE(absl::IsResourceExhausted(Begin(registry, "new").status()))
      << "their nodes may just be coming back";
  const TimePoint later = Now() + kDesertedRunTimeout;
  ASSERT_TRUE(Begin(registry, "new", "", later).ok());
  ASSERT_TRUE(Begin(registry, "newer", "", later).ok());
  EXPECT_EQ(registry.Find("flood-0"), nullptr) << "the one that was deserted first";
  EXPECT_NE(registry.Find("new"), nullptr);
  EXPECT_NE(registry.Find("flood-2"), nullptr);
}

TEST(RunRegistryTest, ARunThatANodeIsConnectedToStays) {
  RunRegistry registry(std::nullopt);
  ASSERT_TRUE(Begin(registry, "connected").ok());
  for (std::size_t i = 1; i < kRunsMax; ++i) {
    ASSERT_TRUE(Begin(registry, absl::StrCat("run-", i)).ok());
  }
  const auto refused = Begin(registry, "new", "", Now() + std::chrono::hours(1));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("has 1024 runs, its limit"));
}

TEST(RunRegistryTest, TheRunsOfOnePeerAreLimited) {
  RunRegistry registry(std::nullopt);
  for (std::size_t i = 0; i < kRunsPerPeerMax; ++i) {
    ASSERT_TRUE(Begin(registry, absl::StrCat("flood-", i), "10.0.0.1").ok());
  }
  const auto refused = Begin(registry, "one more", "10.0.0.1");
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("begun from the same address or with the same certificate"));
  EXPECT_TRUE(Begin(registry, "another's", "10.0.0.2").ok());
  EXPECT_TRUE(Begin(registry, "own").ok());
}

TEST(RunRegistryTest, TheDesertedRunsOfAPeerMakeRoomForItsOwn) {
  RunRegistry registry(std::nullopt);
  ASSERT_TRUE(Begin(registry, "another's", "10.0.0.2").ok());
  for (std::size_t i = 0; i < kRunsPerPeerMax; ++i) {
    const auto place = Begin(registry, absl::StrCat("job-", i), "10.0.0.1");
    ASSERT_TRUE(place.ok());
    Disconnect(registry, *place);
  }
  EXPECT_TRUE(Begin(registry, "new", "10.0.0.1", Now() + kDesertedRunTimeout).ok());
  EXPECT_EQ(registry.Find("job-0"), nullptr);
  EXPECT_NE(registry.Find("another's"), nullptr);
}

TEST(RunRegistryTest, RunsOfAJournalMakeRoomToo) {
  TempDir folder;
  const auto open = [&folder] {
    auto journal = ServiceJournal::Start(
        [&folder](const JournalReplay& replay) {
          return OpenSqliteJournal(folder / "journal", {}, replay);
        },
        [](const absl::Status& status) { ADD_FAILURE() << status; });
    EXPECT_TRUE(journal.ok()) << journal.status();
    return *std::move(journal);
  };
  {
    RunRegistry registry(std::nullopt, open());
    Fill(registry);
  }
  {
    RunRegistry registry(std::nullopt, open());
    ASSERT_NE(registry.Find("flood-1023"), nullptr) << "its nodes may come back";
    ASSERT_TRUE(Begin(registry, "new", "", Now() + kDesertedRunTimeout).ok());
  }
  RunRegistry registry(std::nullopt, open());
  EXPECT_NE(registry.Find("new"), nullptr);
}

}  // namespace
}  // namespace ddprun
