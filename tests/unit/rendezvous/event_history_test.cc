// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/event_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using Json = nlohmann::json;

RunNotice Joined(const std::string& host) {
  RunNotice note;
  note.kind = NoticeKind::kNodeJoined;
  note.node_id = NodeId{"id-" + host};
  note.host = host;
  return note;
}

RunNotice Broken(int rank) {
  RunNotice note;
  note.kind = NoticeKind::kRoundBroken;
  note.round = RoundId{3};
  note.why = Failure{.rank = rank, .host = "a", .exit_code = 7};
  return note;
}

std::vector<std::uint64_t> NumbersOf(const EventHistory& history) {
  std::vector<std::uint64_t> numbers;
  for (const std::string& line : history.Lines())
    numbers.push_back(Json::parse(line)["number"].get<std::uint64_t>());
  return numbers;
}

TEST(EventHistoryTest, KeepsTheOrderAndSaysEachEventInASentence) {
  EventHistory history;
  const EventTime time{std::chrono::system_clock::time_point(std::chrono::seconds(5)), TimePoint()};
  history.Add("job", Joined("a"), time);
  EXPECT_EQ(Json::parse(history.newest())["text"], "node a joined");
  history.Add("job", Broken(2), time);
  history.Add("job", Joined("b"), time);
  EXPECT_EQ(Json::parse(history.newest())["host"], "b");
  EXPECT_THAT(NumbersOf(history), ElementsAre(1, 2, 3));
  const Json broken = Json::parse(history.Lines()[1]);
  EXPECT_EQ(broken["event"], "round.broken");
  EXPECT_EQ(broken["run"], "job");
  EXPECT_EQ(broken["time"], "1970-01-01T00:00:05.000000Z");
  EXPECT_EQ(broken["text"], "round 3 ends: rank 2 (on host a) exited with code 7");
}

TEST(EventHistoryTest, NodesThatJoinPushOutNothingThatExplainsAFailure) {
  EventHistory history;
  history.Add("job", Broken(2), {});
  for (int i = 0; i < 10'000; ++i) history.Add("job", Joined("a"), {});
  EXPECT_THAT(history.Lines(), SizeIs(1 + kRoutineHistoryMax));
  EXPECT_EQ(NumbersOf(history).front(), 1u);
  EXPECT_EQ(NumbersOf(history).back(), 10'001u);
  for (int i = 0; i < 10'000; ++i) history.Add("job", Broken(1), {});
  EXPECT_THAT(history.Lines(), SizeIs(kEventHistoryMax + kRoutineHistoryMax));
  EXPECT_EQ(NumbersOf(history).back(), 20'001u);
}

}  // namespace
}  // namespace ddprun
