// SPDX-License-Identifier: Apache-2.0
// What every way to the store must do: one list of checks.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/tcpstore/store_client.h"

namespace ddprun {

inline StoreOp MakeOp(StoreVerb verb, std::vector<std::string> keys,
                      std::vector<std::string> values = {}) {
  StoreOp op;
  op.verb = verb;
  op.keys = std::move(keys);
  op.values = std::move(values);
  return op;
}

inline StoreOp WithTimeout(StoreOp op, std::chrono::milliseconds timeout) {
  op.timeout = timeout;
  return op;
}

inline std::string ValueOf(const StoreResult& result) {
  if (!result.status.ok()) return std::string(result.status.message());
  return result.values.size() == 1 ? result.values[0] : "not one value";
}

inline void ExpectAllVerbsWork(StoreClient& store) {
  using V = StoreVerb;
  using ::testing::ElementsAre;
  const std::string binary("\0\xff\n", 3);
  EXPECT_TRUE(store.Call(MakeOp(V::kSet, {binary}, {binary})).status.ok());
  EXPECT_EQ(ValueOf(store.Call(MakeOp(V::kGet, {binary}))), binary);
  EXPECT_EQ(store.Call(MakeOp(V::kNumKeys, {})).number, 1);
  EXPECT_EQ(store.Call(MakeOp(V::kDelete, {binary})).number, 1);
  EXPECT_EQ(store.Call(MakeOp(V::kDelete, {binary})).number, 0);
  StoreOp add = MakeOp(V::kAdd, {"n"});
  add.number = 5;
  EXPECT_EQ(store.Call(add).number, 5);
  add.number = -7;
  EXPECT_EQ(store.Call(add).number, -2);
  EXPECT_EQ(ValueOf(store.Call(MakeOp(V::kCompareSet, {"c"}, {"", "x"}))), "x");
  EXPECT_EQ(ValueOf(store.Call(MakeOp(V::kCompareSet, {"c"}, {"y", "z"}))), "x");
  EXPECT_EQ(store.Call(MakeOp(V::kCheck, {"n", "c"})).number, 1);
  EXPECT_EQ(store.Call(MakeOp(V::kCheck, {"n", "absent"})).number, 0);
  EXPECT_TRUE(store.Call(MakeOp(V::kWait, {"n", "c"})).status.ok());
  EXPECT_TRUE(store.Call(MakeOp(V::kAppend, {"c"}, {"yz"})).status.ok());
  EXPECT_TRUE(store.Call(MakeOp(V::kMultiSet, {"m1", "m2"}, {"1", "2"})).status.ok());
  EXPECT_THAT(store.Call(MakeOp(V::kMultiGet, {"m2", "c", "m1"})).values,
              ElementsAre("2", "xyz", "1"));
  EXPECT_THAT(store.Call(MakeOp(V::kListKeys, {})).keys, ElementsAre("c", "m1", "m2", "n"));
  EXPECT_TRUE(store.Call(MakeOp(V::kQueuePush, {"q"}, {"first"})).status.ok());
  EXPECT_TRUE(store.Call(MakeOp(V::kQueuePush, {"q"}, {"second"})).status.ok());
  EXPECT_EQ(store.Call(MakeOp(V::kQueueLen, {"q"})).number, 2);
  EXPECT_EQ(ValueOf(store.Call(MakeOp(V::kQueuePop, {"q"}))), "first");
  EXPECT_EQ(ValueOf(store.Call(MakeOp(V::kQueuePop, {"q"}))), "second");
  EXPECT_EQ(store.Call(MakeOp(V::kQueuePop, {"q"})).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.Call(MakeOp(V::kSet, {"a", "b"}, {"c"})).status.code(),
            absl::StatusCode::kInvalidArgument);
}

inline void ExpectWaitsWork(StoreClient& waiting, StoreClient& setting) {
  using V = StoreVerb;
  using std::chrono::milliseconds;
  StoreResult result;
  std::thread waiter([&] {
    result = waiting.Call(
        WithTimeout(MakeOp(V::kMultiGet, {"late1", "late2"}), std::chrono::seconds(20)));
  });
  setting.Call(MakeOp(V::kSet, {"late1"}, {"1"}));
  setting.Call(MakeOp(V::kSet, {"late2"}, {"2"}));
  waiter.join();
  EXPECT_THAT(result.values, ::testing::ElementsAre("1", "2")) << result.status;

  result = waiting.Call(WithTimeout(MakeOp(V::kWait, {"late1", "never"}), milliseconds(50)));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(result.status.message()),
              ::testing::HasSubstr("waited 50 ms for key 'never'"));
}

inline void ExpectConcurrentCallersWork(StoreClient& store) {
  constexpr int kThreads = 8;
  constexpr int kAdds = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&store, t] {
      StoreOp add = MakeOp(StoreVerb::kAdd, {"counter"});
      add.number = 1;
      for (int i = 0; i < kAdds; ++i) EXPECT_TRUE(store.Call(add).status.ok());
      // A barrier: nobody goes on before all have come, while all share one stream.
      store.Call(MakeOp(StoreVerb::kSet, {"here/" + std::to_string(t)}, {""}));
      StoreOp wait = WithTimeout(MakeOp(StoreVerb::kWait, {}), std::chrono::seconds(20));
      for (int other = 0; other < kThreads; ++other)
        wait.keys.push_back("here/" + std::to_string(other));
      EXPECT_TRUE(store.Call(wait).status.ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ValueOf(store.Call(MakeOp(StoreVerb::kGet, {"counter"}))),
            std::to_string(kThreads * kAdds));
}

}  // namespace ddprun
