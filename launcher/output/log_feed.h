// SPDX-License-Identifier: Apache-2.0
// The output of this node's workers for subscribers of the service (`ddpctl logs`): a bounded tail
// of each worker, and new lines while there is a subscription. Pure: lines and subscriptions in,
// messages out.
//
// A slow subscriber never blocks a worker or this node: what is under way to it is bounded by a
// window, its backlog by a limit; overflow is left out and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/base/output_stream.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

class LogFeed {
 public:
  struct Limits {
    std::size_t tail_bytes = 0;     // of a worker: the newest that fit, at least half of it
    std::size_t line_bytes = 0;     // a longer line is cut, and says so
    std::size_t pending_bytes = 0;  // that wait for a watch's window
    std::size_t window_bytes = 0;
    std::size_t batch_bytes = 0;  // of one message
  };

  explicit LogFeed(const Limits& limits) : limits_(limits) {}

  // A round of `workers` begins. What was said in earlier ones stays in the tails.
  void StartRound(std::uint64_t round, int workers);

  void Add(int worker, int rank, OutputStream stream, std::string_view prefix,
           std::string_view line);

  // What the service says.
  void SetWatches(const std::vector<LogWatch>& wanted);
  void Taken(const LogsTaken& taken);
  // The connection broke: what was under way may not have arrived, and is said again on the next
  // one. The service knows by its number what it has.
  void Pause();

  // What is to be said now. `all`: also what has no place in a window, since no worker runs and the
  // service is about to be told so: its lines come before.
  std::vector<LogLines> Take(bool all);

 private:
  // Records one behind the other, of which the older half goes when the newer one is full: no
  // allocation for a line.
  class Tail {
   public:
    void Add(std::uint64_t number, const LogLine& line, std::size_t bytes_max);
    // The last `count` lines that the watch wants, oldest first, with their numbers.
    void Collect(const LogWatch& watch, std::map<std::uint64_t, LogLine>& into) const;

   private:
    std::string older_;
    std::string newer_;
  };
  struct Pending {
    LogLine line;
    std::uint64_t left_out = 0;  // lines before it
    bool tail_end = false;       // and no line
    std::size_t bytes = 0;
  };
  struct UnderWay {
    LogLines message;
    std::size_t bytes = 0;
  };
  struct Watch {
    LogWatch wanted;
    bool paused = false;
    std::uint64_t number = 0;  // of the last message
    std::deque<Pending> pending;
    std::size_t pending_bytes = 0;
    std::uint64_t left_out = 0;  // lines behind all that wait
    std::deque<UnderWay> under_way;
    std::size_t under_way_bytes = 0;
    std::size_t again = 0;  // the first so many of under_way are to be said once more
    bool tail_said = false;
  };

  Watch Begin(const LogWatch& wanted) const;
  static void Forget(Watch& watch, std::uint64_t number);
  void Append(Watch& watch, const LogLine& line) const;
  LogLines NextMessage(Watch& watch) const;

  const Limits limits_;
  std::uint64_t round_ = 0;
  std::uint64_t lines_ = 0;  // said so far
  std::vector<Tail> tails_;  // by local rank
  std::map<std::uint64_t, Watch> watches_;
  LogLine line_;  // keeps its memory from line to line
};

}  // namespace ddprun
