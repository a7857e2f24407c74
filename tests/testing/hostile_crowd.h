// SPDX-License-Identifier: Apache-2.0
// Many connections to a service on this host which send the same first bytes and then stall. Each
// one that the service closes is made again, until the crowd ends: by itself at the latest when its
// time or its number of connections is used up.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class HostileCrowd {
 public:
  struct Options {
    int port = 0;
    int connections = 0;      // held at a time
    int addresses = 1;        // 1: 127.0.0.1, the node's own; more: others of 127.0.0.0/8
    std::string first_bytes;  // of each connection
    std::chrono::seconds time_max{30};
    int connections_max = 100'000;  // that are made
  };

  explicit HostileCrowd(Options options);
  ~HostileCrowd();  // closes all
  HostileCrowd(const HostileCrowd&) = delete;
  HostileCrowd& operator=(const HostileCrowd&) = delete;

  // Until each connection has been made once. False: not in time.
  bool WaitUntilFull(std::chrono::milliseconds timeout) const;
  int made() const { return made_; }

 private:
  void Run();
  bool Open(int index);

  const Options options_;
  const OwnedFd epoll_;
  std::vector<OwnedFd> held_;
  std::atomic<int> made_{0};
  std::atomic<bool> end_{false};
  std::thread thread_;
};

}  // namespace ddprun
