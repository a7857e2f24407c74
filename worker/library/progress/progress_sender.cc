// SPDX-License-Identifier: Apache-2.0
#include "worker/library/progress/progress_sender.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "rendezvous/base/addresses.h"
#include "rendezvous/base/datagram_socket.h"

namespace ddprun {

ProgressSender::ProgressSender(const std::string& socket_path) {
  const auto address = UnixAddress(socket_path);
  if (!address.ok()) return;
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) return;
  if (connect(socket_, AsSockaddr(*address), sizeof(*address)) != 0) {
    close(socket_);
    socket_ = -1;
  }
}

ProgressSender::~ProgressSender() {
  if (thread_.joinable()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  if (socket_ >= 0) close(socket_);
}

void ProgressSender::Send(const ProgressMessage& message) {
  if (socket_ < 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++words_;
  Merge(message, said_);
  if (unsent_) return;  // the thread sends it with what it has
  const Clock::time_point now = Clock::now();
  if (now >= next_) {
    SendLocked(now);
  } else {
    unsent_ = true;
  }
  if (!unsent_) return;
  if (thread_.joinable()) {
    changed_.notify_one();
  } else {
    thread_ = std::thread([this] { SendLateWords(); });
  }
}

bool ProgressSender::SendPlace(const CollectivePlace& place, std::uint64_t words) {
  if (socket_ < 0) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (words_ != words) return false;
  // Later it would say that the rank goes on.
  if (unsent_) SendLocked(Clock::now());
  if (unsent_) return false;
  ProgressMessage message;
  message.place = place;
  const std::string text = ToText(message);
  return send(socket_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

void ProgressSender::SendLocked(Clock::time_point now) {
  next_ = now + kSendInterval;
  const std::string text = ToText(said_);
  const ssize_t sent = send(socket_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  // A slow agent receives it with the next try; one that has ended receives nothing more.
  unsent_ = sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR);
}

void ProgressSender::SendLateWords() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ending_) {
    if (!unsent_) {
      changed_.wait(lock);
    } else if (changed_.wait_until(lock, next_) == std::cv_status::timeout) {
      if (unsent_) SendLocked(Clock::now());
    }
  }
  if (unsent_) SendLocked(Clock::now());
}

}  // namespace ddprun
