// SPDX-License-Identifier: Apache-2.0
// A store with an invented clock, and tickets that remember their answers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/store/kv_store.h"

namespace ddprun {

inline constexpr RoundId kRound{1};

inline StoreOp MakeOp(StoreVerb verb, std::vector<std::string> keys,
                      std::vector<std::string> values = {}) {
  StoreOp op;
  op.verb = verb;
  op.round = kRound;
  op.keys = std::move(keys);
  op.values = std::move(values);
  return op;
}

class TestStore {
 public:
  explicit TestStore(KvStore::Limits limits = {}) : store(kRound, limits) {}

  KvStore store;
  TimePoint now{std::chrono::hours(1)};

  StoreTicket Submit(StoreOp op) {
    const StoreTicket ticket{++tickets_};
    Keep(store.Submit(ticket, std::move(op), now));
    return ticket;
  }
  // For an operation that does not wait.
  StoreResult Do(StoreOp op) {
    const StoreTicket ticket = Submit(std::move(op));
    EXPECT_TRUE(IsAnswered(ticket));
    return answers_[ticket];
  }
  StoreResult Do(StoreVerb verb, std::vector<std::string> keys,
                 std::vector<std::string> values = {}) {
    return Do(MakeOp(verb, std::move(keys), std::move(values)));
  }
  StoreResult Add(const std::string& key, std::int64_t number) {
    StoreOp op = MakeOp(StoreVerb::kAdd, {key});
    op.number = number;
    return Do(op);
  }
  StoreTicket Wait(StoreVerb verb, std::vector<std::string> keys,
                   std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    StoreOp op = MakeOp(verb, std::move(keys));
    op.timeout = timeout;
    return Submit(op);
  }
  void TickAt(TimePoint time) {
    now = time;
    Keep(store.Tick(now));
  }
  void Clear(RoundId round) { Keep(store.Clear(round)); }

  bool IsAnswered(StoreTicket ticket) const { return answers_.contains(ticket); }
  const StoreResult& AnswerTo(StoreTicket ticket) {
    EXPECT_TRUE(IsAnswered(ticket));
    return answers_[ticket];
  }

 private:
  void Keep(std::vector<KvStore::Answer> answers) {
    for (KvStore::Answer& answer : answers) {
      EXPECT_TRUE(answers_.emplace(answer.ticket, std::move(answer.result)).second)
          << "answered twice";
    }
  }

  std::uint64_t tickets_ = 0;
  std::map<StoreTicket, StoreResult> answers_;
};

}  // namespace ddprun
