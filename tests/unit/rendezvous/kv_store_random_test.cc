// SPDX-License-Identifier: Apache-2.0
// Random operations against a store so simple that it is right: it looks at every waiter after
// every operation.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "tests/unit/rendezvous/kv_store_fixture.h"

namespace ddprun {
namespace {

using V = StoreVerb;

class PlainStore {
 public:
  struct Waiter {
    StoreTicket ticket;
    StoreOp op;
    TimePoint deadline;
  };
  std::map<StoreTicket, StoreResult> answers;

  void Submit(StoreTicket ticket, const StoreOp& op, TimePoint now) {
    if (op.verb == V::kSet) {
      values_[op.keys[0]] = op.values[0];
    } else if (op.verb == V::kDelete) {
      answers[ticket].number = static_cast<std::int64_t>(values_.erase(op.keys[0]));
    } else if (op.verb == V::kQueuePush) {
      queues_[op.keys[0]].push_back(op.values[0]);
      WakeOne(op.keys[0]);
    } else if (IsLoneWait(op) && Has(op, op.keys[0])) {
      // Answered below.
    } else {
      waiters_.push_back({ticket, op, now + op.timeout});
      Serve();
      return;
    }
    answers[ticket];
    Serve();
  }

  void Cancel(StoreTicket ticket) {
    std::erase_if(waiters_, [ticket](const Waiter& waiter) { return waiter.ticket == ticket; });
  }

  void Tick(TimePoint now) {
    std::erase_if(waiters_, [&](const Waiter& waiter) {
      if (waiter.deadline > now) return false;
      answers[waiter.ticket].status = absl::DeadlineExceededError("");
      return true;
    });
  }

 private:
  bool Has(const StoreOp& op, const std::string& key) {
    const bool queued = queues_.contains(key) && !queues_[key].empty();
    if (op.verb == V::kQueuePop) return queued;
    return values_.contains(key) || (op.verb == V::kWait && queued);
  }

  static bool IsLoneWait(const StoreOp& op) { return op.verb == V::kWait && op.keys.size() == 1; }

  // A value that no QUEUE_POP waits for ends one WAIT for its queue alone.
  void WakeOne(const std::string& key) {
    auto first = waiters_.end();
    for (auto it = waiters_.begin(); it != waiters_.end(); ++it) {
      if (it->op.keys[0] != key) continue;
      if (it->op.verb == V::kQueuePop) return;
      if (IsLoneWait(it->op) && first == waiters_.end()) first = it;
    }
    if (first == waiters_.end()) return;
    answers[first->ticket];
    waiters_.erase(first);
  }

  // Those that only look come before those that take.
  void Serve() {
    for (const bool takers : {false, true}) {
      std::erase_if(waiters_, [&](const Waiter& waiter) {
        if ((waiter.op.verb == V::kQueuePop) != takers) return false;
        for (const std::string& key : waiter.op.keys) {
          if (!Has(waiter.op, key)) return false;
          if (IsLoneWait(waiter.op) && !values_.contains(key)) return false;
        }
        StoreResult& result = answers[waiter.ticket];
        for (const std::string& key : waiter.op.keys) {
          if (takers) {
            result.values.push_back(queues_[key].front());
            queues_[key].pop_front();
          } else if (waiter.op.verb != V::kWait) {
            result.values.push_back(values_[key]);
          }
        }
        return true;
      });
    }
  }

  std::map<std::string, std::string> values_;
  std::map<std::string, std::deque<std::string>> queues_;
  std::vector<Waiter> waiters_;
};

StoreOp RandomOp(std::mt19937& random) {
  const auto below = [&random](int limit) {
    return std::uniform_int_distribution<int>(0, limit - 1)(random);
  };
  const auto key = [&below] { return std::string(1, static_cast<char>('a' + below(4))); };
  constexpr V kVerbs[] = {V::kSet,  V::kDelete,   V::kQueuePush, V::kGet,
                          V::kWait, V::kMultiGet, V::kQueuePop};
  StoreOp op = MakeOp(kVerbs[below(7)], {key()});
  if (op.verb == V::kSet || op.verb == V::kQueuePush) op.values = {std::to_string(below(1000))};
  if (op.verb == V::kWait || op.verb == V::kMultiGet) {
    for (int more = below(3); more > 0; --more) op.keys.push_back(key());
  }
  op.timeout = std::chrono::milliseconds(1 + below(50));
  return op;
}

TEST(KvStoreRandomTest, EveryOperationHasThePlainStoresAnswer) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    PlainStore plain;
    KvStore store(kRound);
    std::map<StoreTicket, StoreResult> answers;
    const auto keep = [&answers](std::vector<KvStore::Answer> got) {
      for (auto& answer : got) {
        ASSERT_TRUE(answers.emplace(answer.ticket, std::move(answer.result)).second)
            << "answered twice";
      }
    };
    TimePoint now{};
    std::size_t waited = 0;
    for (std::uint64_t i = 1; i <= 2000; ++i) {
      now += std::chrono::milliseconds(random() % 3);
      plain.Tick(now);
      keep(store.Tick(now));
      const StoreOp op = RandomOp(random);
      plain.Submit(StoreTicket{i}, op, now);
      keep(store.Submit(StoreTicket{i}, op, now));
      if (random() % 10 == 0) {
        const StoreTicket some{i - random() % std::min<std::uint64_t>(i, 20)};
        plain.Cancel(some);
        store.Cancel(some);
      }
      waited += store.waiter_count() > 0 ? 1 : 0;
      ASSERT_EQ(answers.size(), plain.answers.size()) << "after step " << i;
    }
    EXPECT_GT(waited, 500u) << "too few waits to show anything";
    for (const auto& [ticket, result] : plain.answers) {
      ASSERT_TRUE(answers.contains(ticket));
      EXPECT_EQ(answers[ticket].status.code(), result.status.code());
      EXPECT_EQ(answers[ticket].values, result.values);
      if (result.status.ok()) {
        EXPECT_EQ(answers[ticket].number, result.number);
      }
    }
  }
}

}  // namespace
}  // namespace ddprun
