// SPDX-License-Identifier: Apache-2.0
// Work beside other work: begun at once, waited for once, and its error not lost.
#include "worker/distributed/warm_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ddprun {
namespace {

constexpr std::chrono::seconds kWarmUpTimeout{60};

std::string ErrorOf(WarmUp& warm_up) {
  try {
    warm_up.Wait();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(WarmUpTest, GoesOnWhileNobodyWaits) {
  std::latch begun(1);
  std::latch may_end(1);
  std::atomic<bool> done{false};
  WarmUp warm_up("it", kWarmUpTimeout, [&] {
    begun.count_down();
    may_end.wait();
    done = true;
  });
  begun.wait();  // nobody has waited for the work, and it has begun
  EXPECT_FALSE(done);
  may_end.count_down();
  warm_up.Wait();
  EXPECT_TRUE(done);
}

TEST(WarmUpTest, ManyThreadsWaitForTheSameWork) {
  std::atomic<int> runs{0};
  WarmUp warm_up("it", kWarmUpTimeout, [&] { ++runs; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      warm_up.Wait();
      warm_up.Wait();
      EXPECT_EQ(runs, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(WarmUpTest, ItsErrorIsThrownToEachWhoWaits) {
  WarmUp warm_up("it", kWarmUpTimeout, [] { throw std::invalid_argument("no device"); });
  EXPECT_THROW(warm_up.Wait(), std::invalid_argument);
  EXPECT_EQ(ErrorOf(warm_up), "no device");
}

TEST(WarmUpTest, AfterTheLimitASentenceSaysWhatIsMissing) {
  const auto never = std::make_shared<std::latch>(1);
  {
    WarmUp warm_up("NCCL's communicator", std::chrono::milliseconds(20),
                   [never] { never->wait(); });
    EXPECT_EQ(ErrorOf(warm_up),
              "NCCL's communicator was not ready within 0.02 s; see what the other ranks say, or "
              "raise --timeout");
  }  // and nobody waits for what hangs
  never->count_down();
}

}  // namespace
}  // namespace ddprun
