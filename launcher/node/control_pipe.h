// SPDX-License-Identifier: Apache-2.0
// A node's end of the control pipe: its stdin, over which the head of the run sends orders. End of
// file means that the head is gone.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/node/control_pipe_protocol.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// The orders of the head to this node.
struct Orders {
  std::vector<std::string> arguments;    // of ddprun
  std::string token;                     // the run's secret in digits; empty: none
  std::string host;                      // this node's name, as the user wrote it
  std::string folder;                    // to work in
  std::vector<std::string> environment;  // NAME=VALUE
  bool serve = false;                    // the service listens at any free port and reports it
};

class ControlPipe {
 public:
  // Takes over stdin, which becomes /dev/null for this process and its children.
  static ControlPipe TakeStdin();

  // Sends Hello on stdout and waits for orders. CANCELLED: the head ended, or ended this node
  // before it began. INVALID_ARGUMENT: stdin does not come from a head; one sentence.
  absl::StatusOr<Orders> AwaitOrders();

  // Readable when the head has sent something or is gone.
  int fd() const { return fd_.get(); }

  // After orders: the signals that the head passed on. Reads at most once, and only if `readable`.
  // `ended`: the head is gone.
  std::vector<PassSignal> TakeSignals(bool readable, bool& ended);
  // The head's stdin, as far as TakeSignals() has read it.
  std::vector<PassStdin> TakeInput() { return std::exchange(input_, {}); }

 private:
  bool ReadMore();
  bool TakeLine(std::string& line);

  OwnedFd fd_;
  std::string buffer_;  // unread bytes begin at taken_; may contain the secret
  std::size_t taken_ = 0;
  int number_ = 0;  // of this node
  std::vector<PassStdin> input_;
};

// Enters the folder and sets the environment, except the secret. FAILED_PRECONDITION: the
// folder is not there; one sentence.
absl::Status FollowOrders(const Orders& orders);

}  // namespace ddprun
