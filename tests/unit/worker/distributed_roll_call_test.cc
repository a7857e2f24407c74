// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <thread>

#include "worker/library/distributed/roll_call.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

struct Caller {
  int rank;
  int world_size;
  SharedFacts facts = {};
};

// A store of rank 0's, and each caller's own client of it. A HashStore will not do: its add() wakes
// nobody who waits.
class Stores {
 public:
  c10::intrusive_ptr<c10d::Store> NewClient() const {
    return Connect(/*server=*/false, server_->getPort());
  }

 private:
  static c10::intrusive_ptr<c10d::TCPStore> Connect(bool server, std::uint16_t port) {
    c10d::TCPStoreOptions options;
    options.isServer = server;
    options.port = port;
    options.waitWorkers = false;
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }

  const c10::intrusive_ptr<c10d::TCPStore> server_ = Connect(/*server=*/true, 0);
};

// A world as it is without a launcher: the store is gone as soon as rank 0 has its answer.
std::vector<std::string> CallWhereRankZeroServes(const std::vector<Caller>& others, int world_size,
                                                 milliseconds timeout) {
  auto stores = std::make_unique<Stores>();
  std::vector<c10::intrusive_ptr<c10d::Store>> clients;
  for (std::size_t i = 0; i < others.size(); ++i) clients.push_back(stores->NewClient());
  std::vector<std::string> told(others.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < others.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        CallRoll(*clients[i], others[i].rank, others[i].world_size, timeout);
      } catch (const std::exception& error) {
        told[i] = error.what();
      }
    });
  }
  const auto own = stores->NewClient();
  // Rank 0 comes last: it judges at once.
  for (const Caller& caller : others)
    own->wait({"ddprun/roll_call/rank/" + std::to_string(caller.rank)}, timeout);
  EXPECT_THROW(CallRoll(*own, 0, world_size, timeout), std::runtime_error);
  stores.reset();
  for (std::thread& thread : threads) thread.join();
  return told;
}

// What each caller was told, all of them at once in one store; empty for one that may go on.
std::vector<std::string> Call(const std::vector<Caller>& callers, milliseconds timeout) {
  const Stores stores;
  std::vector<std::string> told(callers.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < callers.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        CallRoll(*stores.NewClient(), callers[i].rank, callers[i].world_size, timeout,
                 callers[i].facts);
      } catch (const std::runtime_error& error) {
        told[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return told;
}

constexpr milliseconds kLong{20'000};
// In which a rank that is there joins, on a busy machine too.
constexpr milliseconds kShort{1000};

TEST(RollCall, AllHereGoOn) { EXPECT_THAT(Call({{0, 3}, {1, 3}, {2, 3}}, kLong), Each(IsEmpty())); }

TEST(RollCall, OneAloneGoesOn) { EXPECT_THAT(Call({{0, 1}}, kLong), Each(IsEmpty())); }

TEST(RollCall, AllHearWhoIsMissing) {
  EXPECT_THAT(Call({{0, 4}, {2, 4}}, kShort), Each(HasSubstr("ranks 1, 3 of 4 did not come")));
}

TEST(RollCall, ManyMissingRanksAreNotAllNamed) {
  EXPECT_THAT(Call({{0, 100}}, kShort),
              Each(HasSubstr("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 91 more of 100")));
}

TEST(RollCall, AllHearWhoseWorldSizeIsAnother) {
  EXPECT_THAT(Call({{0, 2}, {1, 3}}, kLong),
              Each(HasSubstr("rank 1 has WORLD_SIZE 3, rank 0 has 2")));
}

TEST(RollCall, RankZeroDoesNotTakeTheStoreAwayBeforeAllHaveHeard) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(CallWhereRankZeroServes({{1, 3}, {2, 3}}, 2, kLong),
                Each(HasSubstr("rank 1 has WORLD_SIZE 3, rank 0 has 2")));
  }
}

TEST(RollCall, ARankBeyondRankZerosWorldHearsIt) {
  const auto told = Call({{0, 1}, {1, 2}}, kLong);
  EXPECT_THAT(told[0], IsEmpty());
  EXPECT_THAT(told[1], HasSubstr("rank 1 has WORLD_SIZE 2, rank 0 has 1"));
}

TEST(RollCall, ASettingThatDiffersIsNamedWithBothValuesToAll) {
  const SharedFacts facts = {{"--lr", "0.1"}, {"--seed", "0"}, {"--max-steps", ""}};
  const SharedFacts other = {{"--lr", "0.1"}, {"--seed", "5"}, {"--max-steps", ""}};
  EXPECT_THAT(Call({{0, 3, facts}, {1, 3, facts}, {2, 3, facts}}, kLong), Each(IsEmpty()));
  EXPECT_THAT(Call({{0, 3, facts}, {1, 3, facts}, {2, 3, other}}, kLong),
              Each(testing::StrEq("the ranks do not agree: --seed is 5 on rank 2, but 0 on rank 0; "
                                  "start all ranks with the same settings and the same data")));
}

TEST(RollCall, ManyRanksFactsAreCompared) {
  constexpr int kRanks = 70;  // more than are read at a time
  std::vector<Caller> callers;
  for (int rank = 0; rank < kRanks; ++rank)
    callers.push_back({rank, kRanks, {{"--lr", rank == 67 ? "0.2" : "0.1"}}});
  EXPECT_THAT(Call(callers, kLong), Each(HasSubstr("--lr is 0.2 on rank 67, but 0.1 on rank 0")));
}

TEST(RollCall, DisagreementNamesTheFirstFewAndWhatOneDoesNotKnow) {
  EXPECT_EQ(Disagreement({{"a", "1"}}, 1, {{"a", "1"}}), "");
  EXPECT_EQ(Disagreement({{"a", "1"}, {"b", ""}}, 1, {{"b", "2"}}),
            "a is unknown on rank 1, but 1 on rank 0, b is 2 on rank 1, but not set on rank 0");
  EXPECT_EQ(Disagreement({}, 1, {{"new", "x"}}), "new is x on rank 1, but unknown on rank 0");
  const SharedFacts ours = {{"a", "1"}, {"b", "1"}, {"c", "1"}, {"d", "1"}, {"e", "1"}};
  const SharedFacts theirs = {{"a", "2"}, {"b", "2"}, {"c", "2"}, {"d", "2"}, {"e", "2"}};
  EXPECT_THAT(Disagreement(ours, 1, theirs),
              testing::AllOf(HasSubstr("c is 2"), testing::Not(HasSubstr("d is")),
                             HasSubstr(", and 2 more")));
}

TEST(RollCall, ARankThatComesTwiceIsNamed) {
  const Stores stores;
  std::vector<std::string> told(2);
  std::vector<std::thread> twins;
  for (std::string& text : told) {
    twins.emplace_back([&] {
      try {
        CallRoll(*stores.NewClient(), 1, 2, kLong);
      } catch (const std::runtime_error& error) {
        text = error.what();
      }
    });
  }
  // Rank 0 comes when both have been counted; before, it could not tell.
  const auto store = stores.NewClient();
  while (store->add("ddprun/roll_call/rank/1", 0) != 4) std::this_thread::yield();
  EXPECT_THROW(CallRoll(*store, 0, 2, kLong), std::runtime_error);
  for (std::thread& twin : twins) twin.join();
  EXPECT_THAT(told, Each(HasSubstr("two processes have RANK 1")));
}

// What each of `size` ranks returns, or the sentence that it throws; rank 0's store is gone then.
std::vector<std::string> DecideWhereRankZeroServes(int size, const Decide& decide) {
  auto stores = std::make_unique<Stores>();
  std::vector<c10::intrusive_ptr<c10d::Store>> clients;
  for (int rank = 0; rank < size; ++rank) clients.push_back(stores->NewClient());
  std::vector<std::string> told(static_cast<std::size_t>(size));
  const auto call = [&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    try {
      told[i] =
          DecideTogether(*clients[i], rank, size, "test", "of " + std::to_string(rank), decide);
    } catch (const std::runtime_error& error) {
      told[i] = error.what();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < size; ++rank) threads.emplace_back(call, rank);
  call(0);
  const bool refused = !told[0].empty() && told[0].front() == '!';
  if (refused) stores.reset();
  for (std::thread& thread : threads) thread.join();
  return told;
}

TEST(DecideTogetherTest, RankZeroDecidesByAllTexts) {
  const auto join = [](const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += text + ";";
    return all;
  };
  EXPECT_THAT(DecideWhereRankZeroServes(3, join), Each("of 0;of 1;of 2;"));
  EXPECT_THAT(DecideWhereRankZeroServes(1, join), Each("of 0;"));
}

TEST(DecideTogetherTest, ARefusalReachesEveryRankBeforeTheStoreGoes) {
  const auto refuse = [](const std::vector<std::string>&) -> std::string {
    throw std::runtime_error("!a sentence");
  };
  EXPECT_THAT(DecideWhereRankZeroServes(4, refuse), Each("!a sentence"));
}

}  // namespace
}  // namespace ddprun
