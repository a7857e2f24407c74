// SPDX-License-Identifier: Apache-2.0
#include "worker/library/rounds/round_listener.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <variant>

#include "proto/progress_message.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/datagram_socket.h"

namespace ddprun {
namespace {

// Waits while the agent's queue is full, for a short time: no message is sent twice.
OwnedFd ConnectTo(const std::string& path) {
  const auto address = UnixAddress(path);
  if (!address.ok()) return OwnedFd();
  OwnedFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const timeval limit{.tv_sec = RoundListener::kSendLimit.count() / 1000, .tv_usec = 0};
  if (!fd.valid() || connect(fd.get(), AsSockaddr(*address), sizeof(*address)) != 0 ||
      setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
    return OwnedFd();
  return fd;
}

bool Watch(int epoll, int fd) {
  epoll_event readable{.events = EPOLLIN, .data = {.fd = fd}};
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &readable) == 0;
}

OwnedFd BindAt(const std::string& path) {
  const auto address = UnixAddress(path);
  return address.ok() ? BindDatagramSocket(*address) : OwnedFd();
}

}  // namespace

std::unique_ptr<RoundListener> RoundListener::Start(const std::string& notify_socket) {
  OwnedFd notify = ConnectTo(notify_socket);
  if (!notify.valid()) return nullptr;
  OwnedFd rounds = BindAt(RoundSocketPath(notify_socket));
  OwnedFd ending(eventfd(0, EFD_CLOEXEC));
  OwnedFd either(epoll_create1(EPOLL_CLOEXEC));
  if (!Watch(either.get(), rounds.get()) || !Watch(either.get(), ending.get())) return nullptr;
  return std::unique_ptr<RoundListener>(new RoundListener(
      notify_socket, std::move(notify), std::move(rounds), std::move(ending), std::move(either)));
}

RoundListener::RoundListener(std::string notify_socket, OwnedFd notify, OwnedFd rounds,
                             OwnedFd ending, OwnedFd either)
    : notify_socket_(std::move(notify_socket)),
      notify_(std::move(notify)),
      rounds_(std::move(rounds)),
      ending_(std::move(ending)),
      either_(std::move(either)),
      thread_([this] { Read(); }) {
  ProgressMessage keep;
  keep.can_be_kept = true;
  Send(ToText(keep));
}

RoundListener::~RoundListener() {
  eventfd_write(ending_.get(), 1);
  thread_.join();
}

void RoundListener::Enter(std::uint64_t round, std::shared_ptr<Interrupt> interrupt) {
  bool over = false;
  {
    const std::lock_guard lock(mutex_);
    round_ = round;
    interrupt_ = interrupt;
    over = broken_ >= round;
  }
  if (over) interrupt->Trigger();
}

bool RoundListener::AwaitBroken(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return broken_ >= round_; });
}

void RoundListener::Leave(const std::string& error, std::optional<CollectivePlace> place) {
  ProgressMessage left;
  left.place = std::move(place);
  std::shared_ptr<Interrupt> interrupt;
  {
    const std::lock_guard lock(mutex_);
    left.left_round = round_;
    interrupt = interrupt_;
  }
  left.error = error.substr(0, kProgressErrorBytesMax);
  Send(ToText(left));
  if (interrupt) interrupt->Trigger();
}

std::optional<RoundBegins> RoundListener::AwaitRound(const std::function<bool()>& gives_up) {
  std::unique_lock lock(mutex_);
  inside_ = false;
  if (broken_ > 0 && broken_ >= round_) Confirm(broken_);
  while (!changed_.wait_for(lock, kGiveUpInterval, [this] { return next_.has_value(); })) {
    lock.unlock();
    if (gives_up()) return std::nullopt;
    lock.lock();
  }
  inside_ = true;
  round_ = next_->round;
  interrupt_.reset();
  return std::exchange(next_, std::nullopt);
}

void RoundListener::Read() {
  std::array<char, kRoundMessageBytesMax> text;
  while (true) {
    epoll_event ready{};
    if (epoll_wait(either_.get(), &ready, 1, /*timeout=*/-1) <= 0) continue;
    if (ready.data.fd == ending_.get()) return;
    std::optional<std::string_view> message;
    if (ReceiveDatagram(rounds_.get(), text.data(), text.size(), message) && message)
      Receive(*message);
  }
}

void RoundListener::Receive(std::string_view text) {
  std::optional<RoundMessage> message = ParseRoundMessage(text);
  if (!message) return;
  if (const auto* broken = std::get_if<RoundBroken>(&*message))
    Handle(*broken);
  else
    Handle(std::get<RoundBegins>(*std::move(message)));
}

// If this round was left already, confirms it again: the answer may have been lost.
void RoundListener::Handle(const RoundBroken& broken) {
  EndRound(broken.round);
  const std::lock_guard lock(mutex_);
  if (!inside_ || broken.round < round_) Confirm(broken.round);
}

void RoundListener::Confirm(std::uint64_t round) {
  ProgressMessage left;
  left.left_round = round;
  Send(ToText(left));
}

// The round before is over, even if the message that it is broken was lost.
void RoundListener::Handle(RoundBegins begins) {
  EndRound(begins.round - 1);
  {
    const std::lock_guard lock(mutex_);
    if (begins.round <= std::max(broken_, round_)) return;
    next_ = std::move(begins);
  }
  changed_.notify_all();
}

void RoundListener::EndRound(std::uint64_t round) {
  std::shared_ptr<Interrupt> interrupt;
  {
    const std::lock_guard lock(mutex_);
    broken_ = std::max(broken_, round);
    if (next_ && next_->round <= broken_) next_.reset();
    if (broken_ >= round_) interrupt = interrupt_;
  }
  if (interrupt) interrupt->Trigger();
  changed_.notify_all();
}

void RoundListener::Send(const std::string& text) {
  // An agent that has ended ends this process too.
  [[maybe_unused]] const ssize_t sent = send(notify_.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

}  // namespace ddprun
