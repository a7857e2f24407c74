// SPDX-License-Identifier: Apache-2.0
// What only our store can meet: a round that is over, an agent that is gone or was never there, the
// service's limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "rendezvous/base/limits.h"
#include "tests/integration/worker/service.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kStoreTimeout{20'000};

TEST(StoreErrors, AnOldRoundIsRefusedAndItsWaitsEnd) {
  Service service;
  const auto store = service.ConnectThroughProxy(kStoreTimeout);
  store->set("key", "1");
  auto waiting = std::async(std::launch::async, [&] { store->get_to_str("never"); });
  service.proxy().SetRound(RoundId{ToNumber(service.round()) + 1});
  EXPECT_THROW(waiting.get(), c10::DistStoreError);
  EXPECT_THROW(store->get("key"), c10::DistStoreError);
}

TEST(StoreErrors, AnAgentThatIsNotThereIsANetworkErrorThatNamesIt) {
  try {
    AgentStore::Connect({.target = "unix:/nonexistent/agent.sock",
                         .round = RoundId{1},
                         .connect_timeout = milliseconds(200)},
                        kStoreTimeout);
    FAIL() << "connected to nothing";
  } catch (const c10::DistNetworkError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("/nonexistent/agent.sock"));
  }
}

TEST(StoreErrors, AnAgentThatGoesEndsItsWorkersWaits) {
  auto service = std::make_unique<Service>();
  const auto store = service->ConnectThroughProxy(kStoreTimeout);
  store->set("key", "1");
  auto waiting = std::async(std::launch::async, [&] { store->get_to_str("never"); });
  service.reset();
  EXPECT_THROW(waiting.get(), c10::DistError);
  EXPECT_THROW(store->set("key", "2"), c10::DistNetworkError);
}

TEST(StoreErrors, AValueOverTheLimitIsRefusedAndTheStoreStaysUsable) {
  Service service;
  const auto store = service.ConnectThroughProxy(kStoreTimeout);
  EXPECT_THROW(store->set("large", std::string(kValueBytesMax + 1, 'x')), c10::DistStoreError);
  store->set("small", "1");
  EXPECT_EQ(store->get_to_str("small"), "1");
}

TEST(StoreErrors, AddToWhatIsNoNumberIsAnError) {
  Service service;
  const auto store = service.ConnectThroughProxy(kStoreTimeout);
  store->set("text", "seven");
  EXPECT_THROW(store->add("text", 1), c10::DistStoreError);
}

}  // namespace
}  // namespace ddprun
