// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/civet_end.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>

namespace ddprun {
namespace {

// Between two connections: the first one may come before the server has begun to end.
constexpr std::chrono::milliseconds kKnockInterval{2};

void Knock(const addrinfo& at) {
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  static_cast<void>(connect(fd, at.ai_addr, at.ai_addrlen));
  close(fd);
}

}  // namespace

void EndCivet(const std::string& address, int port, const std::function<void()>& end) {
  addrinfo numbers{};
  numbers.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  numbers.ai_socktype = SOCK_STREAM;
  addrinfo* at = nullptr;
  const bool brackets = address.size() > 2 && address.front() == '[';
  const std::string number = brackets ? address.substr(1, address.size() - 2) : address;
  if (getaddrinfo(number.c_str(), std::to_string(port).c_str(), &numbers, &at) != 0) return end();
  std::atomic<bool> ended{false};
  std::thread knocks;
  try {
    knocks = std::thread([&ended, at] {
      while (!ended) {
        Knock(*at);
        std::this_thread::sleep_for(kKnockInterval);
      }
    });
  } catch (const std::system_error&) {  // no thread is left
  }
  end();
  ended = true;
  if (knocks.joinable()) knocks.join();
  freeaddrinfo(at);
}

}  // namespace ddprun
