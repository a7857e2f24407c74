// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/spill_buffer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ddprun {
namespace {

// The size of a read, and the smallest write.
constexpr std::size_t kPieceBytes = 256u << 10;

}  // namespace

bool SpillBuffer::OpenFile() {
  if (file_.valid()) return true;
  if (file_failed_) return false;
  const char* chosen = std::getenv("TMPDIR");
  // /var/tmp before /tmp, which may be memory.
  for (const char* folder : {chosen, "/var/tmp", "/tmp"}) {
    if (folder == nullptr) continue;
    std::string path = std::string(folder) + "/ddprun-console-XXXXXX";
    file_ = OwnedFd(mkostemp(path.data(), O_CLOEXEC));
    if (!file_.valid()) continue;
    unlink(path.c_str());
    return true;
  }
  file_failed_ = true;
  return false;
}

// Moves as much of the tail as possible to the file.
bool SpillBuffer::Spill() {
  if (!OpenFile()) return false;
  std::size_t done = 0;
  while (done < tail_.size() && file_size_ < limits_.file_bytes) {
    const std::uint64_t at = (file_begin_ + file_size_) % limits_.file_bytes;
    const std::uint64_t room = std::min(limits_.file_bytes - file_size_, limits_.file_bytes - at);
    const std::size_t bytes =
        static_cast<std::size_t>(std::min<std::uint64_t>(room, tail_.size() - done));
    const ssize_t count = pwrite(file_.get(), tail_.data() + done, bytes, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;  // the disk is full
    done += static_cast<std::size_t>(count);
    file_size_ += static_cast<std::uint64_t>(count);
  }
  tail_.erase(0, done);
  return done > 0;
}

bool SpillBuffer::Append(std::string_view text, bool use_reserve) {
  const std::size_t head = head_.size() - taken_;
  tail_ += text;
  if (head + tail_.size() > limits_.memory_bytes && tail_.size() >= kPieceBytes) Spill();
  const std::size_t limit =
      limits_.memory_bytes + kPieceBytes + (use_reserve ? limits_.reserve_bytes : 0);
  // What the file has a part of stays whole.
  if (head + tail_.size() <= limit || tail_.size() < text.size()) return true;
  tail_.resize(tail_.size() - text.size());
  return false;
}

std::string_view SpillBuffer::Front() {
  if (taken_ == head_.size()) {
    head_.clear();
    taken_ = 0;
    if (file_size_ > 0) {
      const std::uint64_t bytes =
          std::min({file_size_, limits_.file_bytes - file_begin_, std::uint64_t{kPieceBytes}});
      head_.resize(static_cast<std::size_t>(bytes));
      ssize_t count = 0;
      do {
        count = pread(file_.get(), head_.data(), head_.size(), static_cast<off_t>(file_begin_));
      } while (count < 0 && errno == EINTR);
      if (count <= 0) {  // the disk has lost the data
        head_.clear();
        file_size_ = 0;
        file_failed_ = true;
        file_.Reset();
        return Front();
      }
      head_.resize(static_cast<std::size_t>(count));
      file_size_ -= head_.size();
      file_begin_ = (file_begin_ + head_.size()) % limits_.file_bytes;
      if (file_size_ == 0) {  // frees the disk
        file_begin_ = 0;
        file_.Reset();
      }
    } else {
      head_.swap(tail_);
    }
  }
  return std::string_view(head_).substr(taken_);
}

void SpillBuffer::Pop(std::size_t bytes) { taken_ += bytes; }

void SpillBuffer::Clear() {
  head_.clear();
  tail_.clear();
  taken_ = 0;
  file_.Reset();
  file_size_ = 0;
  file_begin_ = 0;
}

}  // namespace ddprun
