// SPDX-License-Identifier: Apache-2.0
// Passes what is typed at a terminal on to the rank of --stdin, over a pipe: the workers are in
// sessions of their own, and a program that finds a terminal at its stdin would edit lines on its
// stdout, which is a pipe. A stdin that is no terminal needs none of this: the rank inherits it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "launcher/base/poller.h"
#include "launcher/options/options.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class StdinPump {
 public:
  // `warden`: the process that the user started, which is in the foreground of its terminal or not.
  // `terminal`: usually stdin.
  StdinPump(const WorkerStdin& worker_stdin, pid_t warden, int terminal = STDIN_FILENO);

  // For the stdin of the rank, in each round the same: what one process of the rank has not read,
  // the next one reads. -1: the rank inherits ddprun's own.
  int worker_end() const { return worker_end_.get(); }

  // The ranks of this node. Nothing is read while the rank is on another one.
  void BeginRound(int rank_first, int local_world_size);

  // Source::kStdin.
  void OnReady();
  // Call in each turn of the loop: reads, unless the last bytes still wait for the rank.
  void OnTurn(Poller& poller, TimePoint now);
  std::optional<TimePoint> NextDeadline() const { return retry_; }

 private:
  void Read();
  void Write();
  void Watch(Poller& poller, int fd, std::uint32_t events);

  const WorkerStdin worker_stdin_;
  const pid_t warden_;
  OwnedFd terminal_;    // a description of its own, which does not block; not valid: at its end
  OwnedFd worker_end_;  // open for the next round
  OwnedFd pipe_;        // the other end
  std::string pending_;
  bool here_ = false;
  bool ready_ = false;
  int watched_ = -1;
  std::optional<TimePoint> retry_;
};

// True if the process is in the foreground of its terminal, or has none. `stat`: the text of
// /proc/PID/stat. Pure.
bool SaysForeground(absl::string_view stat);

}  // namespace ddprun
