// SPDX-License-Identifier: Apache-2.0
// The sockets over which workers report progress and are told of rounds and notices
// (proto/progress_message.h, proto/round_message.h, launcher/processes/notice_message.h): a
// datagram socket for each process that was started as a worker; its path identifies it, whichever
// of its own processes sends a message.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "launcher/processes/notice_message.h"
#include "proto/progress_message.h"
#include "proto/round_message.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class ProgressSockets {
 public:
  ProgressSockets() = default;
  ~ProgressSockets() { Close(); }
  ProgressSockets(const ProgressSockets&) = delete;
  ProgressSockets& operator=(const ProgressSockets&) = delete;

  // Creates the one of `worker` in a folder that belongs to this user alone, in place of the one
  // that is there. No two processes may have the same `name`. UNAVAILABLE: it cannot be created.
  absl::Status Open(const std::string& folder, const std::string& name, int worker);
  void Close(int worker);
  void Close();

  // The numbers of two workers change places.
  void Swap(int a, int b) { std::swap(sockets_[Index(a)], sockets_[Index(b)]); }

  // Empty, and -1: it has none.
  std::string path(int worker) const { return Has(worker) ? sockets_[Index(worker)].path : ""; }
  int fd(int worker) const { return Has(worker) ? sockets_[Index(worker)].fd.get() : -1; }

  // Returns the messages since the last call, merged into one. Absent: none. The socket stays
  // readable if there are more.
  std::optional<ProgressMessage> Read(int worker);

  // Asks a worker that watches its collectives where it is (collective_watch.py). Never waits.
  void AskPlace(int worker) const;

  // Never waits. False: the worker has not bound its own socket, is gone, or does not read.
  bool Send(int worker, const RoundMessage& message) const;
  bool Send(int worker, const NoticeMessage& message) const;

 private:
  struct Socket {
    std::string path;
    OwnedFd fd;
  };
  bool SendTo(int worker, const std::string& path, const std::string& text) const;
  static std::size_t Index(int worker) { return static_cast<std::size_t>(worker); }
  bool Has(int worker) const { return Index(worker) < sockets_.size(); }

  std::vector<Socket> sockets_;  // by the worker's number
};

}  // namespace ddprun
