// SPDX-License-Identifier: Apache-2.0
// A stretch of network that the test can break: what connects to it is connected to `target_port`,
// until the test cuts all connections.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ddprun {

class Relay {
 public:
  // Listens on `port`, which another relay had; 0: on a free one.
  explicit Relay(int target_port, int port = 0)
      : target_port_(target_port),
        listen_fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        wake_fd_(eventfd(0, EFD_CLOEXEC)) {
    sockaddr_in address = Loopback(port);
    socklen_t size = sizeof(address);
    const int on = 1;
    setsockopt(listen_fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    EXPECT_EQ(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listen_fd_, 16), 0);
    getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Loop(); });
  }
  ~Relay() {
    Order(kStop);
    thread_.join();
    close(listen_fd_);
    close(wake_fd_);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int port() const { return port_; }
  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }
  // What is under way in either direction is lost.
  void Cut() { Order(kCut); }
  // What the service sends is swallowed, or is carried again.
  void LoseAnswers(bool lose) { lose_answers_ = lose; }
  int cuts() const { return cuts_; }  // of a connection that was there

 private:
  static constexpr std::uint64_t kCut = 1;
  static constexpr std::uint64_t kStop = 1u << 20;

  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
  }

  void Order(std::uint64_t order) { ASSERT_EQ(write(wake_fd_, &order, sizeof(order)), 8); }

  void Loop() {
    while (true) {
      std::vector<pollfd> watched{{listen_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
      for (const auto& pair : pairs_) {
        watched.push_back({pair.first, POLLIN, 0});
        watched.push_back({pair.second, POLLIN, 0});
      }
      poll(watched.data(), watched.size(), -1);
      if (watched[1].revents != 0) {
        std::uint64_t orders = 0;
        if (read(wake_fd_, &orders, sizeof(orders)) != 8) return;
        cuts_ += pairs_.empty() ? 0 : 1;
        for (const auto& pair : pairs_) ClosePair(pair);
        pairs_.clear();
        if (orders >= kStop) return;
        continue;
      }
      for (std::size_t i = pairs_.size(); i-- > 0;) {
        const bool alive = Pass(watched[2 + 2 * i], pairs_[i].second, false) &&
                           Pass(watched[3 + 2 * i], pairs_[i].first, lose_answers_);
        if (alive) continue;
        ClosePair(pairs_[i]);
        pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (watched[0].revents != 0) Accept();
    }
  }

  void Accept() {
    const int from = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    const int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(target_port_);
    if (connect(to, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      ClosePair({from, to});
      return;
    }
    const int on = 1;
    for (const int fd : {from, to}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    pairs_.emplace_back(from, to);
  }

  static bool Pass(const pollfd& from, int to, bool lose) {
    if (from.revents == 0) return true;
    std::array<char, 65536> bytes;
    const ssize_t got = recv(from.fd, bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    if (lose) return true;
    ssize_t sent = 0;
    while (sent < got) {
      const ssize_t part =
          send(to, bytes.data() + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
      if (part <= 0) return false;
      sent += part;
    }
    return true;
  }

  static void ClosePair(const std::pair<int, int>& pair) {
    close(pair.first);
    close(pair.second);
  }

  const int target_port_;
  const int listen_fd_;
  const int wake_fd_;
  int port_ = 0;
  std::atomic<int> cuts_ = 0;
  std::atomic<bool> lose_answers_ = false;
  std::vector<std::pair<int, int>> pairs_;  // on the thread only
  std::thread thread_;
};

}  // namespace ddprun
