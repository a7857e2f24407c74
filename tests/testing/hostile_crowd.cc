// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/hostile_crowd.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace ddprun {
namespace {

constexpr std::uint32_t kFirstOther = 0x7f010001;  // 127.1.0.1

sockaddr_in AddressOf(std::uint32_t host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(host);
  return address;
}

}  // namespace

HostileCrowd::HostileCrowd(Options options)
    : options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      held_(static_cast<std::size_t>(options_.connections)),
      thread_([this] { Run(); }) {}

HostileCrowd::~HostileCrowd() {
  end_ = true;
  thread_.join();
}

bool HostileCrowd::WaitUntilFull(std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (made_ < options_.connections) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool HostileCrowd::Open(int index) {
  OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return false;
  if (options_.addresses > 1) {
    const sockaddr_in from =
        AddressOf(kFirstOther + static_cast<std::uint32_t>(index % options_.addresses), 0);
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0) return false;
  }
  const sockaddr_in to = AddressOf(INADDR_LOOPBACK, options_.port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 &&
      errno != EINPROGRESS) {
    return false;
  }
  epoll_event event{.events = EPOLLOUT | EPOLLIN | EPOLLRDHUP, .data = {.u32 = 0}};
  event.data.u32 = static_cast<std::uint32_t>(index);
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event);
  held_[static_cast<std::size_t>(index)] = std::move(fd);
  return true;
}

void HostileCrowd::Run() {
  const auto deadline = std::chrono::steady_clock::now() + options_.time_max;
  std::array<epoll_event, 256> events;
  std::array<char, 16384> ignored;
  std::size_t next = 0;
  int begun = 0;
  while (!end_ && std::chrono::steady_clock::now() < deadline && begun < options_.connections_max) {
    bool all = true;
    for (std::size_t looked = 0, opened = 0; looked < held_.size() && opened < 64; ++looked) {
      next = (next + 1) % held_.size();
      if (held_[next].valid()) continue;
      all = false;
      if (!Open(static_cast<int>(next))) break;
      ++begun;
      ++opened;
    }
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), all ? 10 : 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& happened = events[static_cast<std::size_t>(i)];
      OwnedFd& fd = held_[happened.data.u32];
      if (!fd.valid()) continue;
      if ((happened.events & EPOLLOUT) != 0) {
        ++made_;
        send(fd.get(), options_.first_bytes.data(), options_.first_bytes.size(), MSG_NOSIGNAL);
        epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = happened.data};
        epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd.get(), &event);
      }
      if ((happened.events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0) continue;
      if (recv(fd.get(), ignored.data(), ignored.size(), 0) <= 0 && errno != EAGAIN) fd.Reset();
    }
  }
}

}  // namespace ddprun
