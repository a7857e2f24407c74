// SPDX-License-Identifier: Apache-2.0
// How a worker is told that a machine of the run will be taken away (preemption). Datagrams with
// KEY=VALUE lines, so that any language can take part (worker/python/ddprun/notices.py is a client
// in Python).
//
// The worker sends, to DDPRUN_NOTIFY_SOCKET (proto/progress_message.h has its other keys):
//   NOTICES=1       it has bound a datagram socket to NoticeSocketPath() and reads it. A notice
//                   that came before is then sent at once.
//   SAVED=1         it has saved for the notice of that number: once all workers of the run have,
//                   the node that will be taken away is drained
// The agent sends, to NoticeSocketPath():
//   NOTICE=1        the number of the notice; one that is repeated has the same
//   SECONDS=118.25  the time left
//   HOST=b          whose machine it is, of this node or another one
//   NODE_RANK=1     -1: it has none yet
//   REASON=SIGUSR1  how the notice came
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "proto/progress_message.h"
#include "proto/text.h"

namespace ddprun {

struct NoticeMessage {
  std::uint64_t number = 0;
  std::chrono::milliseconds remaining{0};
  std::string host;
  int node_rank = -1;
  std::string reason;
};

// A line end in a value is sent as a space.
inline std::string ToText(const NoticeMessage& message) {
  return absl::StrFormat("NOTICE=%d\nSECONDS=%.3f\nHOST=%s\nNODE_RANK=%d\nREASON=%s\n",
                         message.number, static_cast<double>(message.remaining.count()) / 1000,
                         OneLine(message.host), message.node_rank, OneLine(message.reason));
}

}  // namespace ddprun
