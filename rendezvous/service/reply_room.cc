// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/reply_room.h"

#include <chrono>

#include "rendezvous/base/limits.h"

namespace ddprun {

bool ReplyRoom::Take(const std::shared_ptr<Writer>& writer, std::size_t bytes, bool waits) {
  absl::MutexLock lock(&mutex_);
  if (FitsLocked(bytes)) {
    bytes_ += bytes;
    holders_[writer.get()] = {writer, bytes, std::chrono::steady_clock::now()};
    return true;
  }
  if (waits) {
    waiting_.emplace_back(writer, bytes);
    WatchLocked();
  }
  return false;
}

bool ReplyRoom::FitsLocked(std::size_t bytes) const {
  return holders_.empty() || bytes_ + bytes <= kReplyRoomBytes;
}

void ReplyRoom::Release(Writer* writer) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = holders_.find(writer);
    if (it == holders_.end()) return;
    bytes_ -= it->second.bytes;
    holders_.erase(it);
  }
  // One that has ended meanwhile takes no room, so others are told as long as there is some. The
  // newest first: those of peers that do not read are the oldest.
  while (true) {
    std::shared_ptr<Writer> next;
    {
      absl::MutexLock lock(&mutex_);
      if (waiting_.empty() || !FitsLocked(waiting_.back().second)) return;
      next = waiting_.back().first.lock();
      waiting_.pop_back();
    }
    if (next != nullptr) next->TryAgain();
  }
}

// Looks again when the first of them could count as stalled.
void ReplyRoom::WatchLocked() {
  if (std::exchange(watching_, true)) return;
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(std::chrono::system_clock::now() + kReplyRoomTimeout,
              [weak = weak_from_this()](bool) {
                if (const std::shared_ptr<ReplyRoom> self = weak.lock()) self->CutOffStalled();
              });
}

void ReplyRoom::CutOffStalled() {
  std::vector<std::shared_ptr<Writer>> stalled;
  {
    absl::MutexLock lock(&mutex_);
    watching_ = false;
    if (waiting_.empty()) return;
    const TimePoint now = std::chrono::steady_clock::now();
    for (const auto& entry : holders_) {
      if (entry.second.since + kReplyRoomTimeout > now) continue;
      if (std::shared_ptr<Writer> writer = entry.second.writer.lock())
        stalled.push_back(std::move(writer));
    }
    WatchLocked();
  }
  for (const std::shared_ptr<Writer>& writer : stalled) writer->CutOff();
}

}  // namespace ddprun
