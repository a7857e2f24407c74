// SPDX-License-Identifier: Apache-2.0
// Work beside other work: begun at once, waited for once, and its error not lost.
#include "worker/library/base/background_task.h"

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

constexpr std::chrono::seconds kTaskTimeout{60};

std::string ErrorOf(BackgroundTask& task) {
  try {
    task.Wait();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(BackgroundTaskTest, AWaitEndsWhenTheCheckThrows) {
  std::latch may_end(1);
  BackgroundTask task("it", kTaskTimeout, [&] { may_end.wait(); });
  int checks = 0;
  EXPECT_THROW(task.Wait([&checks] {
    if (++checks == 2) throw std::logic_error("enough");
  }),
               std::logic_error);
  may_end.count_down();
  task.Wait();
}

TEST(BackgroundTaskTest, GoesOnWhileNobodyWaits) {
  std::latch begun(1);
  std::latch may_end(1);
  std::atomic<bool> done{false};
  BackgroundTask task("it", kTaskTimeout, [&] {
    begun.count_down();
    may_end.wait();
    done = true;
  });
  begun.wait();  // nobody has waited for the work, and it has begun
  EXPECT_FALSE(done);
  may_end.count_down();
  task.Wait();
  EXPECT_TRUE(done);
}

TEST(BackgroundTaskTest, ManyThreadsWaitForTheSameWork) {
  std::atomic<int> runs{0};
  BackgroundTask task("it", kTaskTimeout, [&] { ++runs; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      task.Wait();
      task.Wait();
      EXPECT_EQ(runs, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(BackgroundTaskTest, ItsErrorIsThrownToEachWhoWaits) {
  BackgroundTask task("it", kTaskTimeout, [] { throw std::invalid_argument("no device"); });
  EXPECT_THROW(task.Wait(), std::invalid_argument);
  EXPECT_EQ(ErrorOf(task), "no device");
}

TEST(BackgroundTaskTest, AfterTheLimitASentenceSaysWhatIsMissing) {
  const auto never = std::make_shared<std::latch>(1);
  {
    BackgroundTask task("NCCL's communicator", std::chrono::milliseconds(20),
                        [never] { never->wait(); });
    EXPECT_EQ(ErrorOf(task),
              "NCCL's communicator was not ready within 0.02 s; see what the other ranks say, or "
              "raise the timeout");
  }  // and nobody waits for what hangs
  never->count_down();
}

}  // namespace
}  // namespace ddprun
