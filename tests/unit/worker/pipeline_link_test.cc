// SPDX-License-Identifier: Apache-2.0
// Links between threads of one process. Those between ranks are in tests/integration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <future>

#include "worker/pipeline/thread_link.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

struct Pair {
  explicit Pair(milliseconds timeout = std::chrono::seconds(30))
      : left(forward, backward, {.peer_name = "the right one", .timeout = timeout}),
        right(backward, forward, {.peer_name = "the left one", .timeout = timeout}) {}

  std::shared_ptr<ThreadChannel> forward = std::make_shared<ThreadChannel>();
  std::shared_ptr<ThreadChannel> backward = std::make_shared<ThreadChannel>();
  ThreadLink left;
  ThreadLink right;
};

std::string MessageOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ThreadLink, TensorsArriveInOrderBothWays) {
  Pair pair;
  pair.left.StartSend(at::tensor({1}), 1);
  pair.left.StartSend(at::tensor({2}), 1);
  pair.right.StartSend(at::tensor({3}), 1);
  EXPECT_EQ(pair.right.FinishReceive().item<int>(), 1);
  EXPECT_EQ(pair.right.FinishReceive().item<int>(), 2);
  EXPECT_EQ(pair.left.FinishReceive().item<int>(), 3);
}

TEST(ThreadLink, ASendWaitsWhenTooManyAreOnTheirWay) {
  Pair pair;
  for (std::size_t i = 0; i < kSendsInFlightMax; ++i) pair.left.StartSend(at::zeros({1}), 1);
  auto more = std::async(std::launch::async, [&] { pair.left.StartSend(at::ones({1}), 1); });
  for (std::size_t i = 0; i < kSendsInFlightMax; ++i)
    EXPECT_EQ(pair.right.FinishReceive().item<float>(), 0);
  EXPECT_EQ(pair.right.FinishReceive().item<float>(), 1);
  more.get();
}

TEST(ThreadLink, ANeighbourThatDoesNotComeIsNamedAtTheDeadline) {
  Pair pair(milliseconds(10));
  EXPECT_THAT(MessageOf([&] { pair.left.FinishReceive(); }),
              AllOf(HasSubstr("the right one did not send"), HasSubstr("--timeout")));
  for (std::size_t i = 0; i < kSendsInFlightMax; ++i) pair.left.StartSend(at::zeros({1}), 1);
  EXPECT_THAT(MessageOf([&] { pair.left.StartSend(at::zeros({1}), 1); }),
              HasSubstr("the right one did not take"));
}

TEST(ThreadLink, ANeighbourThatHasFailedEndsTheWait) {
  Pair pair(std::chrono::minutes(10));
  auto waiting =
      std::async(std::launch::async, [&] { return MessageOf([&] { pair.left.FinishReceive(); }); });
  pair.right.Close();
  EXPECT_THAT(waiting.get(), HasSubstr("the right one did not send"));
  EXPECT_THAT(MessageOf([&] { pair.left.StartSend(at::zeros({1}), 1); }),
              HasSubstr("the right one did not take"));
}

}  // namespace
}  // namespace ddprun
