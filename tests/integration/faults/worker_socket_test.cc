// SPDX-License-Identifier: Apache-2.0
// The workers' socket where descriptors run out, its file is removed, or clients wait to be let in.
#include "rendezvous/proxy/worker_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/owned_fd.h"
#include "tests/integration/rendezvous/raw_worker.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/eventually.h"

namespace ddprun {
namespace {

// Answers with the bytes that came.
class WorkerSocketTest : public ::testing::Test {
 protected:
  WorkerSocketTest()
      : socket_({[](StoreWorker, int, bool) { return WorkerSocket::Admission::kServed; },
                 [this](StoreWorker worker, std::string_view bytes) {
                   socket_.Send(worker, {std::string(bytes)});
                   return WorkerSocket::Received{};
                 },
                 [](StoreWorker) {}, [](StoreWorker) {}, [] { return std::nullopt; }}) {
    EXPECT_TRUE(socket_.Listen(path_).ok());
  }

  static void ExpectAnswer(RawWorker& worker) {
    worker.Write("ping");
    EXPECT_EQ(worker.Read(4), "ping");
  }

  TempDir folder_;
  const std::string path_ = folder_ / "s";
  WorkerSocket socket_;
};

// All of this process's descriptors are taken, but for one.
class FewDescriptors {
 public:
  FewDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &few);
    while (true) {
      OwnedFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!fd.valid()) break;
      taken_.push_back(std::move(fd));
    }
    if (!taken_.empty()) taken_.pop_back();
  }
  ~FewDescriptors() { Raise(); }
  void Raise() { setrlimit(RLIMIT_NOFILE, &before_); }
  void FreeOne() { taken_.pop_back(); }

 private:
  rlimit before_{};
  std::vector<OwnedFd> taken_;
};

TEST_F(WorkerSocketTest, IsServedAgainAsSoonAsAnyDescriptorIsFree) {
  RawWorker early(path_);
  ExpectAnswer(early);
  FewDescriptors few;
  RawWorker late(path_);  // has the last descriptor; there is none to accept it with
  // The listener was ready before this message came: it has been looked at.
  ExpectAnswer(early);
  few.FreeOne();  // of no worker's
  ExpectAnswer(late);
}

TEST_F(WorkerSocketTest, IsMadeAgainWhereItsFileWasRemoved) {
  RawWorker early(path_);
  ExpectAnswer(early);
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_TRUE(socket_.EnsureListening().ok());
  RawWorker late(path_);
  ExpectAnswer(late);
  ExpectAnswer(early);
  EXPECT_TRUE(socket_.EnsureListening().ok()) << "it is there, and stays";
}

// Stop() must not be lost where its thread is just clearing another wake.
TEST_F(WorkerSocketTest, StopsRightAfterAWake) {
  for (int i = 0; i < 2000; ++i) {
    WorkerSocket socket({[](StoreWorker, int, bool) { return WorkerSocket::Admission::kServed; },
                         [](StoreWorker, std::string_view) { return WorkerSocket::Received{}; },
                         [](StoreWorker) {}, [](StoreWorker) {}, [] { return std::nullopt; }});
    ASSERT_TRUE(socket.Listen(folder_ / "waking").ok());
    socket.Wake();
    const auto woken = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - woken < std::chrono::microseconds(i % 100)) {
    }
    socket.Stop();
  }
}

// Clients that wait to be let in, in the order in which they connect.
class HeldClientsTest : public ::testing::Test {
 protected:
  HeldClientsTest()
      : socket_({[this](StoreWorker worker, int, bool) {
                   const std::lock_guard<std::mutex> lock(mutex_);
                   held_.push_back(worker);
                   return WorkerSocket::Admission::kHeld;
                 },
                 [this](StoreWorker worker, std::string_view bytes) {
                   const std::lock_guard<std::mutex> lock(mutex_);
                   received_ += bytes;
                   socket_.Send(worker, {std::string(bytes)});
                   return WorkerSocket::Received{};
                 },
                 [](StoreWorker) {},
                 [this](StoreWorker worker) {
                   const std::lock_guard<std::mutex> lock(mutex_);
                   gone_.push_back(worker);
                 },
                 [] { return std::nullopt; }}) {
    EXPECT_TRUE(socket_.Listen(path_).ok());
  }

  template <typename T>
  std::vector<T> Await(std::vector<T>& list, std::size_t count) {
    EXPECT_TRUE(Eventually([&] {
      const std::lock_guard<std::mutex> lock(mutex_);
      return list.size() >= count;
    }));
    const std::lock_guard<std::mutex> lock(mutex_);
    return list;
  }
  std::string Received() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return received_;
  }

  std::mutex mutex_;
  std::vector<StoreWorker> held_, gone_;
  std::string received_;
  TempDir folder_;
  const std::string path_ = folder_ / "s";
  WorkerSocket socket_;
};

TEST_F(HeldClientsTest, OneIsReadOnceItIsLetIn) {
  RawWorker client(path_);
  client.Write("ping");
  const StoreWorker worker = Await(held_, 1).front();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(Received(), "");
  socket_.Hold(worker, false);
  EXPECT_EQ(client.Read(4), "ping");
}

TEST_F(HeldClientsTest, OneThatIsRefusedSeesTheEndAndIsNotRead) {
  RawWorker client(path_);
  const StoreWorker worker = Await(held_, 1).front();
  socket_.End(worker);
  EXPECT_EQ(client.Read(1), "");
  EXPECT_EQ(Await(gone_, 1).front(), worker);
  EXPECT_EQ(Received(), "");
}

TEST_F(HeldClientsTest, OneThatDisconnectsIsGoneUnread) {
  {
    RawWorker client(path_);
    client.Write("ping");
    Await(held_, 1);
  }
  EXPECT_EQ(Await(gone_, 1).size(), 1u);
  EXPECT_EQ(Received(), "");
}

}  // namespace
}  // namespace ddprun
