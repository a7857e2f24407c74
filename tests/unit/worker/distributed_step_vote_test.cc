// SPDX-License-Identifier: Apache-2.0
// Ranks that vote, without a network: a ballot is read by all when all have cast theirs.
#include "ddprun/detail/step_vote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// The ballots of all ranks, by their number.
struct Box {
  std::vector<Ballot::Numbers> greatest;
  std::vector<int> cast;
  int ranks = 0;
};

class BoxBallot : public Ballot {
 public:
  explicit BoxBallot(Box& box) : box_(box) { ++box.ranks; }
  void Cast(const Numbers& own) override {
    if (box_.greatest.size() <= next_) {
      box_.greatest.push_back({});
      box_.cast.push_back(0);
    }
    ++box_.cast[next_];
    for (std::size_t i = 0; i < own.size(); ++i)
      box_.greatest[next_][i] = std::max(box_.greatest[next_][i], own[i]);
    ++next_;
  }
  Numbers Read() override {
    EXPECT_EQ(box_.cast[next_ - 1], box_.ranks) << "read before all ranks had cast theirs";
    return box_.greatest[next_ - 1];
  }

 private:
  Box& box_;
  std::size_t next_ = 0;
};

// What a step came to: on all ranks the same, or the test fails.
class Ranks {
 public:
  explicit Ranks(int count, bool queued) {
    for (int i = 0; i < count; ++i)
      votes_.push_back(std::make_unique<StepVote>(std::make_unique<BoxBallot>(box_), queued));
  }

  StepVote::Wishes Step(const std::vector<StepVote::Wishes>& wishes, milliseconds length) {
    for (std::size_t i = 0; i < votes_.size(); ++i) votes_[i]->Begin(wishes[i], now_);
    now_ += length;
    std::vector<StepVote::Wishes> results;
    for (const auto& vote : votes_) results.push_back(vote->End());
    for (const auto& result : results) {
      EXPECT_EQ(result.save, results[0].save);
      EXPECT_EQ(result.notice, results[0].notice);
      EXPECT_EQ(result.stop, results[0].stop);
    }
    return results[0];
  }

  std::size_t ballots() const { return box_.greatest.size(); }

 private:
  Box box_;
  std::vector<std::unique_ptr<StepVote>> votes_;
  StepVote::Time now_{};
};

TEST(StepVote, OfARankAloneIsItsOwnWish) {
  StepVote vote(nullptr, /*queued=*/false);
  vote.Begin({.save = true, .stop = 15});
  const StepVote::Wishes result = vote.End();
  EXPECT_TRUE(result.save);
  EXPECT_EQ(result.stop, 15);
  vote.Begin({});
  EXPECT_FALSE(vote.End().save);
}

TEST(StepVote, OnACpuEachLongStepKnowsWhatAnyRankWishes) {
  Ranks ranks(3, /*queued=*/false);
  EXPECT_FALSE(ranks.Step({{}, {}, {}}, milliseconds(100)).save);
  EXPECT_TRUE(ranks.Step({{.save = true}, {}, {}}, milliseconds(100)).save);
  EXPECT_EQ(ranks.Step({{}, {.stop = 2}, {.stop = 15}}, milliseconds(100)).stop, 15);
  EXPECT_EQ(ranks.ballots(), 3u);
}

// Each rank hears of a notice at another moment, and all save for it at one step.
TEST(StepVote, ANoticeThatOneRankHasHeardIsKnownToAll) {
  Ranks ranks(3, /*queued=*/false);
  const StepVote::Wishes result =
      ranks.Step({{.save = true}, {.notice = 2}, {.notice = 1}}, milliseconds(100));
  EXPECT_EQ(result.notice, 2);
  EXPECT_EQ(ranks.Step({{.save = true}, {}, {}}, milliseconds(100)).notice, 0);
  StepVote alone(nullptr, /*queued=*/false);
  alone.Begin({.notice = 3});
  EXPECT_EQ(alone.End().notice, 3);
}

// Steps until the first that has what is asked for. The wish is there in one step only.
int StepsTo(StepVote::Wishes own, Ranks& ranks, milliseconds length) {
  const StepVote::Wishes wanted = own;
  for (int steps = 1; steps < 100; ++steps) {
    const StepVote::Wishes result = ranks.Step({own, {}}, length);
    if (result.save == wanted.save && result.stop == wanted.stop) return steps;
    own = {};
  }
  return -1;
}

int StepsToSave(Ranks& ranks, milliseconds length) {
  return StepsTo({.save = true}, ranks, length);
}

class StepVotes : public testing::TestWithParam<bool> {};  // whether steps are queued, as on a GPU
INSTANTIATE_TEST_SUITE_P(Both, StepVotes, testing::Bool());

TEST_P(StepVotes, AWishIsKeptUntilABallotHasIt) {
  for (const StepVote::Wishes wish : {StepVote::Wishes{.save = true}, {.stop = 15}}) {
    for (int quiet = 0; quiet < 40; ++quiet) {
      Ranks ranks(2, GetParam());
      for (int i = 0; i < quiet; ++i)
        EXPECT_FALSE(ranks.Step({{}, {}}, milliseconds(1)).save) << "nobody wished for it";
      const int steps = StepsTo(wish, ranks, milliseconds(1));
      EXPECT_GT(steps, 0) << "the wish of step " << quiet << " was dropped";
      EXPECT_LE(steps, StepVote::kIntervalSteps + (GetParam() ? StepVote::kReadAfterSteps + 1 : 2));
    }
  }
}

TEST_P(StepVotes, ShortStepsVoteRarelyAndLongOnesOften) {
  Ranks brief(2, GetParam());
  Ranks slow(2, GetParam());
  for (int i = 0; i < 320; ++i) {
    brief.Step({{}, {}}, milliseconds(1));
    slow.Step({{}, {}}, milliseconds(2000));
  }
  EXPECT_LE(brief.ballots(), 320 / StepVote::kIntervalSteps + 6);
  EXPECT_GE(slow.ballots(), 150u);
  // A signal is heard of two steps later: before a launcher loses patience.
  EXPECT_LE(StepsToSave(slow, milliseconds(2000)), 3);
  // Steps may become longer.
  for (int i = 0; i < 40; ++i) brief.Step({{}, {}}, milliseconds(2000));
  EXPECT_LE(StepsToSave(brief, milliseconds(2000)), 3);
}

// As long as a save is on its way, rank 0 goes on asking for it.
TEST_P(StepVotes, AWishThatIsRepeatedUntilTheSaveIsOneSave) {
  Ranks ranks(2, GetParam());
  for (int i = 0; i < 100; ++i) ranks.Step({{}, {}}, milliseconds(1));
  int saves = 0;
  for (int i = 0; i < 100; ++i)
    saves += ranks.Step({{.save = saves == 0}, {}}, milliseconds(1)).save;
  EXPECT_EQ(saves, 1);
}

}  // namespace
}  // namespace ddprun
