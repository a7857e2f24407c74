// SPDX-License-Identifier: Apache-2.0
// Passes what is typed at a terminal, or what the head of the run reads, on to the rank of --stdin,
// over a pipe. The workers are in sessions of their own, and a program that finds a terminal at its
// stdin would edit lines on its stdout, which is a pipe. Another stdin needs none of this: the rank
// inherits it.
#pragma once

#include <sys/types.h>

#include <functional>
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
  // `ask_head` sends StdinWanted, for which one Receive() comes.
  StdinPump(const WorkerStdin& worker_stdin, std::function<void()> ask_head);

  // For the stdin of the rank, in each round the same: what one process of the rank has not read,
  // the next one reads. -1: the rank inherits ddprun's own.
  int worker_end() const { return worker_end_.get(); }

  // The ranks of this node. Nothing is read while the rank is on another one.
  void BeginRound(int rank_first, int local_world_size);

  // From the head. `end`: nothing follows.
  void Receive(const std::string& bytes, bool end);

  // Source::kStdin.
  void OnReady();
  // Call in each turn of the loop: reads, unless the last bytes still wait for the rank.
  void OnTurn(Poller& poller, TimePoint now);
  std::optional<TimePoint> NextDeadline() const { return retry_; }

 private:
  bool OpenPipe();
  void Read();
  void Write();
  void AskHead();
  void Watch(Poller& poller, int fd, std::uint32_t events);

  const WorkerStdin worker_stdin_;
  const pid_t warden_ = 0;
  const std::function<void()> ask_head_;  // empty: it is a terminal
  OwnedFd terminal_;                      // a description of its own, which does not block
  OwnedFd worker_end_;                    // open for the next round
  OwnedFd pipe_;                          // the other end
  std::string pending_;
  bool ended_ = false;  // nothing follows what is pending
  bool asked_ = false;  // the head
  bool here_ = false;
  bool ready_ = false;
  int watched_ = -1;
  std::optional<TimePoint> retry_;
};

// True if the process is in the foreground of its terminal, or has none. `stat`: the text of
// /proc/PID/stat. Pure.
bool SaysForeground(absl::string_view stat);

}  // namespace ddprun
