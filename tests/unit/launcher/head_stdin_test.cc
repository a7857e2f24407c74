// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/head_stdin.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(HeadStdinTest, APipeIsReadWhenANodeWantsIt) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const OwnedFd read_end(fds[0]);
  OwnedFd write_end(fds[1]);
  ASSERT_EQ(write(fds[1], "a\n", 2), 2);
  Poller poller;
  HeadStdin head_stdin(fds[0]);
  EXPECT_TRUE(poller.Wait(TimePoint()).empty());
  EXPECT_FALSE(head_stdin.Want(poller, 4, 7).has_value());
  ASSERT_EQ(poller.Wait(TimePoint::max()).size(), 1u);
  const auto answer = head_stdin.OnReady(poller);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->transport, 4);
  EXPECT_EQ(answer->input, (PassStdin{7, "a\n", false}));
  write_end.Reset();
  EXPECT_TRUE(poller.Wait(TimePoint()).empty());  // nobody wants more
  EXPECT_FALSE(head_stdin.Want(poller, 0, 1).has_value());
  ASSERT_EQ(poller.Wait(TimePoint::max()).size(), 1u);
  EXPECT_EQ(head_stdin.OnReady(poller)->input, (PassStdin{1, "", true}));
  EXPECT_EQ(head_stdin.Want(poller, 0, 2)->input, (PassStdin{2, "", true}));
}

TEST(HeadStdinTest, AFileIsReadAtOnce) {
  const OwnedFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Poller poller;
  HeadStdin head_stdin(nothing.get());
  EXPECT_EQ(head_stdin.Want(poller, 0, 3)->input, (PassStdin{3, "", true}));
}

}  // namespace
}  // namespace ddprun
