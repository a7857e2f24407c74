// SPDX-License-Identifier: Apache-2.0
// Faults into real processes: what they do, and that they are undone.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <string>

#include "launcher/chaos/fault_injector.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

TimePoint At(int ms) { return TimePoint(milliseconds(ms)); }

// A child that runs `body` and then waits for a signal.
class Child {
 public:
  explicit Child(const std::function<void()>& body = [] {}) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      signal(SIGXFSZ, SIG_IGN);
      body();
      EXPECT_EQ(write(ready[1], "x", 1), 1);
      while (true) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    EXPECT_GE(pidfd_, 0);
  }
  ~Child() {
    if (pid_ > 0 && !reaped_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(pidfd_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  FaultyWorker worker() const { return {.rank = 3, .pid = pid_, .pidfd = pidfd_}; }
  pid_t pid() const { return pid_; }

  // The signal that ended it.
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    reaped_ = true;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  void WaitStopped(int flags) const {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, flags), pid_);
  }
  rlim_t Limit(__rlimit_resource resource) const {
    rlimit limit{};
    EXPECT_EQ(prlimit(pid_, resource, nullptr, &limit), 0);
    return limit.rlim_cur;
  }

 private:
  pid_t pid_ = 0;
  int pidfd_ = -1;
  bool reaped_ = false;
};

Fault Of(FaultKind kind, int ms = 0) {
  return {.id = 1, .kind = kind, .local_rank = 1, .duration = milliseconds(ms), .by = "ddpctl"};
}

TEST(FaultInjector, SignalsEndTheWorker) {
  FaultInjector injector;
  for (const auto& [kind, number] :
       {std::pair(FaultKind::kKill, SIGKILL), std::pair(FaultKind::kSegv, SIGSEGV),
        std::pair(FaultKind::kTerm, SIGTERM)}) {
    Child child;
    const auto done = injector.Inject(Of(kind), child.worker(), At(0));
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_NE(done->find(" to rank 3 (pid " + std::to_string(child.pid()) + ")"),
              std::string::npos);
    EXPECT_EQ(child.Wait(), number);
  }
  EXPECT_FALSE(injector.NextDeadline().has_value());
}

TEST(FaultInjector, AStoppedWorkerIsContinued) {
  FaultInjector injector;
  Child child;
  ASSERT_TRUE(injector.Inject(Of(FaultKind::kStop, 500), child.worker(), At(0)).ok());
  child.WaitStopped(WUNTRACED);
  EXPECT_EQ(injector.NextDeadline(), At(500));
  EXPECT_FALSE(injector.Inject(Of(FaultKind::kDisk), child.worker(), At(1)).ok());
  injector.OnTurn(At(500));
  child.WaitStopped(WCONTINUED);
  EXPECT_FALSE(injector.NextDeadline().has_value());
}

TEST(FaultInjector, ASlowWorkerIsStoppedAndContinuedInTurn) {
  FaultInjector injector;
  Child child;
  ASSERT_TRUE(injector.Inject(Of(FaultKind::kSlow, 100), child.worker(), At(0)).ok());
  child.WaitStopped(WUNTRACED);
  for (int turn = 1; turn < 5; ++turn) {
    const TimePoint next = *injector.NextDeadline();
    EXPECT_LT(next, At(100));
    injector.OnTurn(next);
    child.WaitStopped(turn % 2 == 1 ? WCONTINUED : WUNTRACED);
  }
  injector.OnTurn(At(100));
  child.WaitStopped(WCONTINUED);
  EXPECT_FALSE(injector.NextDeadline().has_value());
}

TEST(FaultInjector, LimitsAreSetAndRestored) {
  for (const auto& [kind, resource] :
       {std::pair(FaultKind::kDisk, RLIMIT_FSIZE), std::pair(FaultKind::kFiles, RLIMIT_NOFILE)}) {
    FaultInjector injector;
    Child child;
    const rlim_t before = child.Limit(resource);
    ASSERT_TRUE(injector.Inject(Of(kind, 100), child.worker(), At(0)).ok());
    EXPECT_EQ(child.Limit(resource), 0u);
    injector.OnTurn(At(100));
    EXPECT_EQ(child.Limit(resource), before);
  }
}

TEST(FaultInjector, EverythingIsUndoneWithTheInjector) {
  Child child;
  const rlim_t before = child.Limit(RLIMIT_FSIZE);
  {
    FaultInjector injector;
    ASSERT_TRUE(injector.Inject(Of(FaultKind::kDisk, 60'000), child.worker(), At(0)).ok());
    EXPECT_NE(child.Limit(RLIMIT_FSIZE), before);
  }
  EXPECT_EQ(child.Limit(RLIMIT_FSIZE), before);
}

// A poller reports a closed descriptor as long as a duplicate of it is open.
TEST(FaultInjector, AWorkerThatHasEndedIsForgottenByThePollerOfItsEnd) {
  FaultInjector injector;
  const OwnedFd poller(epoll_create1(EPOLL_CLOEXEC));
  {
    Child child;
    epoll_event event{};
    event.events = EPOLLIN;
    ASSERT_EQ(epoll_ctl(poller.get(), EPOLL_CTL_ADD, child.worker().pidfd, &event), 0);
    ASSERT_TRUE(injector.Inject(Of(FaultKind::kStop, 60'000), child.worker(), At(0)).ok());
  }
  epoll_event event{};
  EXPECT_EQ(epoll_wait(poller.get(), &event, 1, 0), 0);
}

// ---- Connections

struct Pair {
  int here = -1;
  int there = -1;
};

// A connection over loopback whose one end belongs to a child.
Pair Connect() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  Pair pair;
  pair.there = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(pair.there, reinterpret_cast<sockaddr*>(&address), size), 0);
  pair.here = accept(listener, nullptr, nullptr);
  close(listener);
  return pair;
}

TEST(FaultInjector, ConnectionsAreCut) {
  const Pair pair = Connect();
  Child child([&] { close(pair.here); });
  close(pair.there);
  FaultInjector injector;
  const auto done = injector.Inject(Of(FaultKind::kCut), child.worker(), At(0));
  if (absl::IsPermissionDenied(done.status())) GTEST_SKIP() << done.status();
  ASSERT_TRUE(done.ok()) << done.status();
  char byte = 0;
  EXPECT_EQ(read(pair.here, &byte, 1), 0);
  close(pair.here);
}

TEST(FaultInjector, ConnectionsAreMadeSlowAndFastAgain) {
  const Pair pair = Connect();
  Child child([&] { close(pair.here); });
  const auto rate = [&] {
    std::uint64_t value = 0;
    socklen_t size = sizeof value;
    EXPECT_EQ(getsockopt(pair.there, SOL_SOCKET, SO_MAX_PACING_RATE, &value, &size), 0);
    return value;
  };
  const std::uint64_t before = rate();
  FaultInjector injector;
  const auto done = injector.Inject(Of(FaultKind::kSlowNet, 100), child.worker(), At(0));
  if (absl::IsPermissionDenied(done.status())) GTEST_SKIP() << done.status();
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(rate(), 1'000'000u);
  injector.OnTurn(At(100));
  EXPECT_EQ(rate(), before);
  close(pair.here);
  close(pair.there);
}

TEST(FaultInjector, AWorkerWithoutConnectionsIsNamed) {
  Child child;
  FaultInjector injector;
  const auto done = injector.Inject(Of(FaultKind::kCut), child.worker(), At(0));
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.status().message().find("has no TCP connection now"), std::string::npos);
}

}  // namespace
}  // namespace ddprun
