// SPDX-License-Identifier: Apache-2.0
// Which children this process has, by the kernel's list of each thread and by looking at every
// process.
#include "launcher/processes/orphans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <thread>

namespace ddprun {
namespace {

using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAreArray;

pid_t StartChild() {
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  return pid;
}

TEST(OrphansTest, AChildOfAnyThreadIsFound) {
  std::vector<pid_t> children = {StartChild()};
  std::thread([&] { children.push_back(StartChild()); }).join();  // and ends
  std::promise<pid_t> started;
  std::promise<void> end;
  std::thread lives([&] {
    started.set_value(StartChild());
    end.get_future().wait();
  });
  children.push_back(started.get_future().get());

  const auto by_thread = ChildrenByThread();
  const std::vector<pid_t> by_parent = ChildrenByParent();
  const std::vector<pid_t> strangers =
      ReapAndListChildren([&](pid_t pid) { return pid == children[0]; });
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  const std::vector<pid_t> none = ReapAndListChildren([](pid_t) { return false; });
  end.set_value();
  lives.join();

  EXPECT_THAT(by_parent, IsSupersetOf(children));
  if (by_thread.has_value()) {
    EXPECT_THAT(*by_thread, UnorderedElementsAreArray(by_parent));
  }
  EXPECT_THAT(strangers, UnorderedElementsAreArray({children[1], children[2]}));
  EXPECT_THAT(none, ::testing::IsEmpty());
}

TEST(OrphansTest, AProcessWithoutChildrenIsToldFromOneWithSome) {
  EXPECT_FALSE(ReapOrphans([](pid_t) { return false; }));
  const pid_t child = StartChild();
  EXPECT_TRUE(ReapOrphans([](pid_t) { return false; }));
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_TRUE(ReapOrphans([child](pid_t pid) { return pid == child; })) << "it is reaped elsewhere";
  EXPECT_FALSE(ReapOrphans([](pid_t) { return false; }));
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), -1);
}

}  // namespace
}  // namespace ddprun
