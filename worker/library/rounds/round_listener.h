// SPDX-License-Identifier: Apache-2.0
// This worker's end of the agreement with its agent on rounds (proto/round_message.h). A thread
// that never waits for another rank receives that a round is broken, ends the round's waits, and
// receives the next round. That the round was left is confirmed only when this worker waits for
// another one: one that hangs elsewhere must not count as ready.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "ddprun/detail/interrupt.h"
#include "proto/collective.h"
#include "proto/round_message.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class RoundListener {
 public:
  // Time limit for sending a datagram to an agent whose queue is full.
  static constexpr std::chrono::milliseconds kSendLimit{1000};

  // Binds the socket and sends KEEP=1. Null if there is no agent at `notify_socket`, or none of the
  // sockets can be made: then this worker is not kept.
  static std::unique_ptr<RoundListener> Start(const std::string& notify_socket);
  ~RoundListener();
  RoundListener(const RoundListener&) = delete;
  RoundListener& operator=(const RoundListener&) = delete;

  const std::string& notify_socket() const { return notify_socket_; }

  // This worker is in `round` from now on; `interrupt` is triggered when that is over.
  void Enter(std::uint64_t round, std::shared_ptr<Interrupt> interrupt);

  // Whether the agent has said that the current round is over, or says so within `limit`.
  bool AwaitBroken(std::chrono::milliseconds limit);

  // This worker leaves the current round by itself: a collective has failed for the reason `error`.
  // `place`: which one, where that is known. Triggers the round's interrupt, since other
  // collectives may still wait.
  void Leave(const std::string& error, std::optional<CollectivePlace> place = std::nullopt);

  // Outside a round from now on. The next one, once it is there. Absent if `gives_up` is true
  // first; it is asked every kGiveUpInterval.
  static constexpr std::chrono::milliseconds kGiveUpInterval{20};
  std::optional<RoundBegins> AwaitRound(const std::function<bool()>& gives_up);

 private:
  RoundListener(std::string notify_socket, OwnedFd notify, OwnedFd rounds, OwnedFd ending,
                OwnedFd either);

  void Read();
  void Receive(std::string_view text);
  void Handle(const RoundBroken& broken);
  void Handle(RoundBegins begins);
  void EndRound(std::uint64_t round);
  void Confirm(std::uint64_t round);
  void Send(const std::string& text);

  const std::string notify_socket_;
  const OwnedFd notify_;
  const OwnedFd rounds_;
  const OwnedFd ending_;  // an eventfd that ends the thread
  // An epoll of these two. poll() fails where the limit of open files is lower than their number.
  const OwnedFd either_;

  std::mutex mutex_;  // for what is below
  std::condition_variable changed_;
  std::uint64_t round_ = 0;   // the current one, or the latest
  bool inside_ = true;        // of it; false: this worker waits for another one
  std::uint64_t broken_ = 0;  // the latest that is over
  std::shared_ptr<Interrupt> interrupt_;
  std::optional<RoundBegins> next_;

  std::thread thread_;  // last, so that it starts when everything else is there
};

}  // namespace ddprun
