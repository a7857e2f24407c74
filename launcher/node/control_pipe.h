// SPDX-License-Identifier: Apache-2.0
// The end of a control pipe that a node holds: its stdin, over which the head of the run tells it
// what to do, and whose end says that the head is gone.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/node/control_pipe_protocol.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// What the head has told this node.
struct Orders {
  std::vector<std::string> arguments;    // of ddprun
  std::string token;                     // the run's secret in digits; empty: none
  std::string host;                      // this node's name, as the person knows it
  std::string folder;                    // to work in
  std::vector<std::string> environment;  // NAME=VALUE
  bool serve = false;                    // the service may have any port, and says which
};

class ControlPipe {
 public:
  // Takes stdin away from this process and what it starts: /dev/null stands there then.
  static ControlPipe TakeStdin();

  // Says hello on stdout and waits for orders. CANCELLED: the head went, or ended this node before
  // it began. INVALID_ARGUMENT: stdin is no head's; one sentence.
  absl::StatusOr<Orders> AwaitOrders();

  // Readable when the head has said something or is gone.
  int fd() const { return fd_.get(); }

  // After orders: the signals that the head passed on. Reads at most once, and only if `readable`.
  // `ended`: the head is gone.
  std::vector<PassSignal> TakeSignals(bool readable, bool& ended);

 private:
  bool ReadMore();
  bool TakeLine(std::string& line);

  OwnedFd fd_;
  std::string buffer_;  // what was read and not taken begins at taken_; it may hold the secret
  std::size_t taken_ = 0;
};

// Enters the folder and takes the environment over, but for the secret. FAILED_PRECONDITION: the
// folder is not there; one sentence.
absl::Status FollowOrders(const Orders& orders);

}  // namespace ddprun
