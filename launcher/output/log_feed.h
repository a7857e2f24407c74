// SPDX-License-Identifier: Apache-2.0
// The output of this node's workers for subscribers of the service (`ddpctl logs`): a bounded tail
// of each worker, and new lines while there is a subscription. Pure.
//
// A slow subscriber never blocks a worker or this node: a window limits the unacknowledged bytes, a
// limit its backlog; overflow is dropped and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/base/bounded_queue.h"
#include "launcher/base/output_stream.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

class LogFeed {
 public:
  struct Limits {
    std::size_t tail_bytes = 0;     // of a worker: the newest that fit, and kLastLinesMax at least
    std::size_t line_bytes = 0;     // a longer line is cut, with a note
    std::size_t pending_bytes = 0;  // the backlog of a watch beyond its window
    std::size_t window_bytes = 0;
    std::size_t batch_bytes = 0;  // of one message
  };

  explicit LogFeed(const Limits& limits) : limits_(limits) {}

  // A round of `workers` begins. The lines of earlier ones stay in the tails.
  void StartRound(std::uint64_t round, int workers);

  void Add(int worker, int rank, OutputStream stream, std::string_view prefix,
           std::string_view line);

  // Directives of the service.
  void SetWatches(const std::vector<LogWatch>& wanted);
  void Taken(const LogsTaken& taken);
  // The connection broke: unacknowledged messages are sent again on the next one. The service
  // recognizes duplicates by their number.
  void Pause();

  // The last lines of the worker in this round: at most kLastLinesMax, each cut to
  // kLastLineBytesMax.
  std::vector<std::string> LastLinesOf(int worker) const;

  // The messages to send now. `all`: also beyond the window, because no worker runs and the service
  // must get the lines before it learns that.
  std::vector<LogLines> Take(bool all);

 private:
  struct TailLine {
    std::uint64_t number = 0;
    LogLine line;
  };
  using Tail = BoundedQueue<TailLine>;
  struct Watch {
    LogWatch wanted;
    bool paused = false;
    std::uint64_t number = 0;                      // of the last message
    BoundedQueue<std::optional<LogLine>> pending;  // absent: the end of the tail
    BoundedQueue<LogLines> under_way;
    std::size_t again = 0;  // how many of the first unacknowledged messages to send again
    bool tail_sent = false;
  };

  Watch Begin(const LogWatch& wanted) const;
  static void Forget(Watch& watch, std::uint64_t number);
  LogLines NextMessage(Watch& watch) const;

  const Limits limits_;
  std::uint64_t round_ = 0;
  std::uint64_t lines_ = 0;  // so far
  std::vector<Tail> tails_;  // by local rank
  std::map<std::uint64_t, Watch> watches_;
  LogLine line_;  // kept to reuse its memory
};

}  // namespace ddprun
