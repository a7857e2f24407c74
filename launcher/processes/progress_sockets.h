// SPDX-License-Identifier: Apache-2.0
// The sockets for the progress messages of one round's workers (proto/progress_message.h): a
// datagram socket each; its path identifies the worker, whichever of its processes sends.
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

  // In a folder that is this user's alone. Those of the round before are closed. UNAVAILABLE: no
  // socket can be made, and why.
  absl::Status Open(const std::string& folder, std::uint64_t round, int workers);
  void Close();

  std::size_t size() const { return sockets_.size(); }
  const std::string& path(int worker) const { return sockets_[Index(worker)].path; }
  int fd(int worker) const { return sockets_[Index(worker)].fd.get(); }

  // What the worker has sent since the last call, merged into one message. Absent: nothing. If
  // there is more the socket stays readable.
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
