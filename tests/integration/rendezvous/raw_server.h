// SPDX-License-Identifier: Apache-2.0
// Something that listens and is no ddprun.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "proto/text.h"
#include "rendezvous/base/addresses.h"

namespace ddprun {

// Takes each connection, waits for its first bytes, says one thing and hangs up.
class RawServer {
 public:
  explicit RawServer(std::string answer)
      : answer_(std::move(answer)),
        socket_(*ListenOn("127.0.0.1", 0)),
        target_(HostPort("127.0.0.1", socket_.port)),
        thread_([this] { Run(); }) {}
  ~RawServer() {
    stop_ = true;
    shutdown(socket_.fd.get(), SHUT_RDWR);
    thread_.join();
  }

  const std::string& target() const { return target_; }
  int connections() const { return connections_; }

 private:
  void Run() {
    while (!stop_) {
      pollfd ready{socket_.fd.get(), POLLIN, 0};
      poll(&ready, 1, -1);
      const OwnedFd fd(accept(socket_.fd.get(), nullptr, nullptr));
      if (!fd.valid()) continue;
      ++connections_;
      char bytes[4096];
      if (recv(fd.get(), bytes, sizeof bytes, 0) > 0)
        send(fd.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      shutdown(fd.get(), SHUT_WR);
      while (recv(fd.get(), bytes, sizeof bytes, 0) > 0) {
      }
    }
  }

  const std::string answer_;
  const ListeningSocket socket_;
  const std::string target_;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

}  // namespace ddprun
