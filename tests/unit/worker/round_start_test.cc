// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/round_start.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "worker/library/checkpoint/stop_signal.h"
#include "worker/library/rounds/round_end.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/observers/checks.h"

namespace ddprun {
namespace {

RankState At(std::int64_t step, bool evaluation_due = false) {
  return {.has_state = true,
          .place = {.position = {.step = step, .epoch = 1, .consumed = 64 * step},
                    .evaluation_due = evaluation_due}};
}

TEST(ChooseStart, BeginsWhereNoRankHasAState) {
  EXPECT_FALSE(ChooseStart({{}, {}}, 0).goes_on);
  EXPECT_FALSE(ChooseStart({{}}, 0).sends);
}

TEST(ChooseStart, SendsNothingWhereAllAreAlike) {
  const RoundStart start = ChooseStart({At(5), At(5), At(5)}, 2);
  EXPECT_TRUE(start.goes_on);
  EXPECT_FALSE(start.sends);
  EXPECT_FALSE(start.receives);
  EXPECT_EQ(start.place.position, At(5).place.position);
}

TEST(ChooseStart, ANewRankReceivesFromTheLowestThatIsFurthest) {
  const std::vector<RankState> ranks = {{}, At(4), At(5), At(5)};
  for (int rank = 0; rank < 4; ++rank) {
    const RoundStart start = ChooseStart(ranks, rank);
    EXPECT_TRUE(start.goes_on);
    EXPECT_TRUE(start.sends);
    EXPECT_EQ(start.source, 2);
    EXPECT_EQ(start.receives, rank < 2) << rank;
    EXPECT_EQ(start.place.position.step, 5);
  }
}

// Its parameters are the same: only the place is taken over.
TEST(ChooseStart, AnEvaluationThatIsDoneIsFurther) {
  const RoundStart start = ChooseStart({At(5, true), At(5, false)}, 0);
  EXPECT_EQ(start.source, 1);
  EXPECT_FALSE(start.sends);
  EXPECT_FALSE(start.place.evaluation_due);
}

TEST(ChooseStart, ARankAtStepZeroIsNoNewRank) {
  const RoundStart start = ChooseStart({{}, At(0)}, 0);
  EXPECT_TRUE(start.goes_on);
  EXPECT_EQ(start.source, 1);
  EXPECT_TRUE(start.receives);
}

template <typename Error>
Cause CauseOfA(Error error) {
  return CauseOf(std::make_exception_ptr(error));
}

TEST(CauseOf, IsThePeersWhereTheWordsSaySo) {
  EXPECT_EQ(CauseOfA(RoundOver()), Cause::kPeer);
  EXPECT_EQ(CauseOfA(PeerError("rank 1 has ended")), Cause::kPeer);
  EXPECT_EQ(CauseOfA(std::runtime_error("[gloo/pair.cc:538] Connection closed by peer [::1]:9")),
            Cause::kPeer);
  EXPECT_EQ(CauseOfA(std::runtime_error("Application timeout caused pair closure")), Cause::kPeer);
}

TEST(CauseOf, IsTheRanksOwnWhereAnotherRoundWouldNotHelp) {
  EXPECT_EQ(CauseOfA(TrainingError("the loss is not a number")), Cause::kOwn);
  EXPECT_EQ(CauseOfA(UsageError("--lr")), Cause::kOwn);
  EXPECT_EQ(CauseOfA(DataError("cut short")), Cause::kOwn);
  EXPECT_EQ(CauseOfA(Stopped(15, "ended by SIGTERM")), Cause::kOwn);
  EXPECT_EQ(CauseOfA(std::bad_alloc()), Cause::kOwn);
}

TEST(CauseOf, IsNotKnownOtherwise) {
  EXPECT_EQ(CauseOfA(std::runtime_error("the disk is full")), Cause::kOther);
}

}  // namespace
}  // namespace ddprun
