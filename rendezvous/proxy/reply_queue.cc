// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/reply_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr std::size_t kPiecesAtOnce = 64;

}  // namespace

void UnreadBytes::Add(const StoreValue& value) {
  absl::MutexLock lock(&mutex_);
  if (++queues_[value.bytes()] == 1) total_ += value.size();
}

void UnreadBytes::Remove(const StoreValue& value) {
  absl::MutexLock lock(&mutex_);
  const auto it = queues_.find(value.bytes());
  if (--it->second > 0) return;
  queues_.erase(it);
  total_ -= value.size();
}

template <typename Pieces>
bool ReplyQueue::SendFrom(int fd, const Pieces& pieces, std::size_t& at, std::size_t& bytes) {
  while (at < pieces.size()) {
    std::array<iovec, kPiecesAtOnce> parts{};
    const std::size_t count = std::min(parts.size(), pieces.size() - at);
    for (std::size_t i = 0; i < count; ++i) {
      const std::string& text = pieces[at + i].text();
      const std::size_t begin = i == 0 ? begin_ : 0;
      parts[i] = {const_cast<char*>(text.data()) + begin, text.size() - begin};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN;
    bytes += static_cast<std::size_t>(sent);
    begin_ += static_cast<std::size_t>(sent);
    while (at < pieces.size() && begin_ >= pieces[at].size()) begin_ -= pieces[at++].size();
  }
  return true;
}

bool ReplyQueue::Send(int fd, std::vector<StoreValue> more, TimePoint now) {
  std::size_t sent = 0;
  std::size_t bytes = 0;
  bool open = SendFrom(fd, pieces_, sent, bytes);
  kept_up_until_ = std::min(
      now, kept_up_until_ + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
                                static_cast<double>(bytes) / kUnreadReplyRate)));
  for (; sent > 0; --sent) {
    all_.Remove(pieces_.front());
    pieces_.pop_front();
  }
  if (open && pieces_.empty()) {
    open = SendFrom(fd, more, sent, bytes);
    kept_up_until_ = now;
  }
  if (!open) {
    Clear();
    return false;
  }
  for (; sent < more.size(); ++sent) {
    all_.Add(more[sent]);
    pieces_.push_back(std::move(more[sent]));
  }
  return true;
}

void ReplyQueue::Clear() {
  for (const StoreValue& piece : pieces_) all_.Remove(piece);
  pieces_.clear();
  begin_ = 0;
}

}  // namespace ddprun
