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
    if (op.verb == V::kWaitCount)
      return values_.contains(key) && std::stoll(values_[key]) >= op.number;
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
          } else if (waiter.op.verb != V::kWait && waiter.op.verb != V::kWaitCount) {
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
                          V::kWait, V::kMultiGet, V::kQueuePop,  V::kWaitCount};
  StoreOp op = MakeOp(kVerbs[below(8)], {key()});
  op.number = op.verb == V::kWaitCount ? below(1000) : 0;
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

// The bytes of all keys, values, queue names and queued values.
std::size_t BytesIn(const KvStore& store) {
  std::size_t bytes = 0;
  for (const auto& [key, value] : store.values()) bytes += key.size() + value.size();
  for (const auto& [key, values] : store.queues()) {
    bytes += key.size();
    for (const std::string& value : values) bytes += value.size();
  }
  return bytes;
}

StoreOp RandomWrite(std::mt19937& random) {
  const auto key = [&random] { return std::string(1 + random() % 2, "abc"[random() % 3]); };
  const auto value = [&random] { return std::string(random() % 300, 'v'); };
  constexpr V kVerbs[] = {V::kSet,       V::kAppend,   V::kCompareSet, V::kAdd,
                          V::kDelete,    V::kDelete,   V::kMultiSet,   V::kQueuePush,
                          V::kQueuePush, V::kQueuePop, V::kQueuePop,   V::kQueuePop};
  StoreOp op = MakeOp(kVerbs[random() % std::size(kVerbs)], {key()});
  op.number = static_cast<std::int64_t>(random() % 1000);
  const bool takes_value = op.verb == V::kSet || op.verb == V::kAppend || op.verb == V::kQueuePush;
  if (takes_value) op.values = {value()};
  if (op.verb == V::kCompareSet) op.values = {"", value()};
  if (op.verb == V::kMultiSet) {
    op.keys = {key(), key(), key()};
    op.values = {value(), value(), value()};
  }
  if (op.verb == V::kQueuePop && random() % 2 == 0) op.timeout = std::chrono::milliseconds(5);
  return op;
}

// The store counts its bytes as it changes: after any history the count is what a sum over its
// contents gives, so a long run's store does not fill up with bytes that it does not hold.
TEST(KvStoreRandomTest, TheLimitAppliesToTheBytesThatAreThere) {
  constexpr std::size_t kBytesMax = 2000;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    KvStore store(kRound, {.bytes_max = kBytesMax});
    TimePoint now{};
    std::uint64_t tickets = 0;
    std::size_t fullest = 0;
    const auto set = [&](std::size_t bytes) {
      const auto answers = store.Submit(StoreTicket{++tickets},
                                        MakeOp(V::kSet, {"?"}, {std::string(bytes, 'v')}), now);
      return answers.front().result.status.ok();
    };
    for (int i = 0; i < 1000; ++i) {
      now += std::chrono::milliseconds(1);
      store.Tick(now);
      store.Submit(StoreTicket{++tickets}, RandomWrite(random), now);
      if (random() % 200 == 0) {
        store.Clear(RoundId{2});
        store.Clear(kRound);
      }
      const std::size_t held = BytesIn(store);
      ASSERT_LE(held, kBytesMax);
      fullest = std::max(fullest, held);
      if (held + 1 > kBytesMax) continue;
      const std::size_t room = kBytesMax - held - 1;  // beside the key
      ASSERT_FALSE(set(room + 1)) << "after step " << i;
      ASSERT_TRUE(set(room)) << "after step " << i;
      store.Submit(StoreTicket{++tickets}, MakeOp(V::kDelete, {"?"}), now);
    }
    EXPECT_GT(fullest, kBytesMax * 3 / 4) << "too few bytes to show anything";
  }
}

}  // namespace
}  // namespace ddprun
