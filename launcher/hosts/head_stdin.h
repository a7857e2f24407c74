// SPDX-License-Identifier: Apache-2.0
// The stdin of the head for the rank of --stdin: read only when the rank's node wants more, so that
// whatever is not wanted stays where it is.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>

#include "launcher/base/poller.h"
#include "launcher/node/control_pipe_protocol.h"

namespace ddprun {

class HeadStdin {
 public:
  explicit HeadStdin(int fd = STDIN_FILENO) : fd_(fd) {}

  struct Answer {
    int transport = 0;
    PassStdin input;
  };

  // A node wants more. Absent: it comes when Source::kStdin is ready. A file, which cannot be
  // watched, is read at once.
  std::optional<Answer> Want(Poller& poller, int transport, int node);
  // Source::kStdin.
  std::optional<Answer> OnReady(Poller& poller);

 private:
  std::optional<Answer> Read();

  const int fd_;
  bool ended_ = false;
  bool watched_ = false;
  std::optional<Answer> wanted_;
};

}  // namespace ddprun
