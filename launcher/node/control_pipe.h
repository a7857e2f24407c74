// SPDX-License-Identifier: Apache-2.0
// A node's end of the control pipe: its stdin, over which the head of the run sends orders. End of
// file means that the head is gone.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/node/control_pipe_protocol.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// What the head ordered this node to do.
struct Orders {
  std::vector<std::string> arguments;    // of ddprun
  std::string token;                     // the run's secret in digits; empty: none
  std::string host;                      // this node's name, as the person knows it
  std::string folder;                    // to work in
  std::vector<std::string> environment;  // NAME=VALUE
  bool serve = false;                    // the service takes any free port, and reports it
};

class ControlPipe {
 public:
  // Takes stdin away from this process and what it starts: /dev/null stands there then.
  static ControlPipe TakeStdin();

  // Sends Hello on stdout and waits for orders. CANCELLED: the head ended, or ended this node
  // before it began. INVALID_ARGUMENT: stdin does not come from a head; one sentence.
  absl::StatusOr<Orders> AwaitOrders();

  // Readable when the head has sent something or is gone.
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

// Enters the folder and sets the environment, except the secret. FAILED_PRECONDITION: the
// folder is not there; one sentence.
absl::Status FollowOrders(const Orders& orders);

}  // namespace ddprun
