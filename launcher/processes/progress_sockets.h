// SPDX-License-Identifier: Apache-2.0
// The sockets for the progress messages of one round's workers (proto/progress_message.h): a
// datagram socket each; its path identifies the worker, whichever of its processes sends a message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/progress_message.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class ProgressSockets {
 public:
  ProgressSockets() = default;
  ~ProgressSockets() { Close(); }
  ProgressSockets(const ProgressSockets&) = delete;
  ProgressSockets& operator=(const ProgressSockets&) = delete;

  // Creates them in a folder that belongs to this user alone, and closes those of the previous
  // round. UNAVAILABLE: a socket cannot be created.
  absl::Status Open(const std::string& folder, std::uint64_t round, int workers);
  void Close();

  std::size_t size() const { return sockets_.size(); }
  const std::string& path(int worker) const { return sockets_[Index(worker)].path; }
  int fd(int worker) const { return sockets_[Index(worker)].fd.get(); }

  // Returns the messages since the last call, merged into one. Absent: none. The socket stays
  // readable if there are more.
  std::optional<ProgressMessage> Read(int worker);

 private:
  struct Socket {
    std::string path;
    OwnedFd fd;
  };
  static std::size_t Index(int worker) { return static_cast<std::size_t>(worker); }

  std::vector<Socket> sockets_;  // by local rank
};

}  // namespace ddprun
