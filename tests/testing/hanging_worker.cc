// SPDX-License-Identifier: Apache-2.0
// A worker that tells of its progress and then does not go on.
//   hanging_worker HOW...: rank r hangs as the r-th says, the last one's way being all others'
//     deadlock   two threads, each with the mutex that the other one wants, in step 17, "data"
//     spin       busy without an end, in step 17, "data"
//     wait       for others, in step 18, "all_reduce"
//     silent     without a word
//     steady     does not hang: tells of a step every 20 ms
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

namespace {

// As every program in any language can do it: this one shares no code with ddprun.
void Send(const std::string& words) {
  const char* path = std::getenv("DDPRUN_NOTIFY_SOCKET");
  if (path == nullptr) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sendto(fd, words.data(), words.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&address),
         sizeof(address));
  close(fd);
}

std::mutex left_mutex;
std::mutex right_mutex;
std::atomic<int> holders{0};

void AwaitBoth() {
  ++holders;
  while (holders < 2) std::this_thread::yield();
}

[[gnu::noinline]] void TakeLeftThenRight() {
  const std::lock_guard<std::mutex> left(left_mutex);
  AwaitBoth();
  const std::lock_guard<std::mutex> right(right_mutex);
  std::puts("never");
}

[[gnu::noinline]] void TakeRightThenLeft() {
  const std::lock_guard<std::mutex> right(right_mutex);
  AwaitBoth();
  const std::lock_guard<std::mutex> left(left_mutex);
  std::puts("never");
}

volatile bool forever = true;

[[gnu::noinline]] void SpinForEver() {
  while (forever) {
  }
  std::puts("never");
}

[[gnu::noinline]] void WaitForPeers() {
  while (forever) pause();
  std::puts("never");
}

}  // namespace

int main(int argc, char** argv) {
  const char* rank_variable = std::getenv("RANK");
  const int rank = rank_variable != nullptr ? std::atoi(rank_variable) : 0;
  const std::string how = argc > 1 ? argv[std::min(rank + 1, argc - 1)] : "steady";
  std::printf("pid=%d %s\n", static_cast<int>(getpid()), how.c_str());
  std::fflush(stdout);
  if (how == "wait") {
    Send("STEP=18\nSECTION=all_reduce\n");
    WaitForPeers();
  } else if (how == "deadlock") {
    Send("STEP=17\nSECTION=data\n");
    std::thread other(TakeRightThenLeft);
    TakeLeftThenRight();
    other.join();
  } else if (how == "spin") {
    Send("STEP=17\nSECTION=data\n");
    SpinForEver();
  } else if (how == "silent") {
    WaitForPeers();
  }
  for (int step = 1; forever; ++step) {
    Send("STEP=" + std::to_string(step) + "\nSECTION=step\nRATE=50\nUNIT=images\n");
    if (step == 1) {
      std::puts("told");
      std::fflush(stdout);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}
