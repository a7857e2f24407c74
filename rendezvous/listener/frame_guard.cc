// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/frame_guard.h"

#include <algorithm>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr std::size_t kPrefaceBytes = 24;
constexpr std::size_t kFrameHeaderBytes = 9;

// RFC 9113, section 6.
enum FrameType : std::uint8_t {
  kHeaders = 1,
  kResetStream = 3,
  kContinuation = 9,
};

}  // namespace

bool FrameGuard::Allowance::Take(TimePoint now) {
  const double seconds = std::chrono::duration<double>(now - at).count();
  left = std::min(burst, left + per_second * seconds);
  at = now;
  if (left < 1) return false;
  left -= 1;
  return true;
}

FrameGuard::FrameGuard(TimePoint now)
    : preface_left_(kPrefaceBytes),
      calls_{.burst = kCallsAtOnceMax, .per_second = kCallsPerSecondMax, .at = now},
      resets_{.burst = kResetsAtOnceMax, .per_second = kResetsPerSecondMax, .at = now} {}

const char* FrameGuard::Feed(absl::string_view bytes, TimePoint now) {
  while (!bytes.empty() && verdict_ == nullptr) {
    std::size_t& passing = preface_left_ > 0 ? preface_left_ : skip_;
    if (passing > 0) {
      const std::size_t part = std::min(passing, bytes.size());
      passing -= part;
      bytes.remove_prefix(part);
      continue;
    }
    const std::size_t part = std::min(kFrameHeaderBytes - header_.size(), bytes.size());
    header_.append(bytes.data(), part);
    bytes.remove_prefix(part);
    if (header_.size() < kFrameHeaderBytes) break;
    verdict_ = OnFrame(now);
    header_.clear();
  }
  return verdict_;
}

const char* FrameGuard::OnFrame(TimePoint now) {
  const auto byte = [this](std::size_t at) {
    return static_cast<std::size_t>(static_cast<std::uint8_t>(header_[at]));
  };
  skip_ = (byte(0) << 16) | (byte(1) << 8) | byte(2);
  switch (byte(3)) {
    case kHeaders:
      if (!calls_.Take(now)) return "a client begins more calls than any client of ddprun's";
      block_bytes_ = block_frames_ = 0;
      return OnHeaderBlock();
    case kContinuation:
      return OnHeaderBlock();
    case kResetStream:
      return resets_.Take(now) ? nullptr : "a client resets more calls than any client of ddprun's";
    default:  // gRPC limits the cost of the others: it stops reading a peer that reads no replies
      return nullptr;
  }
}

const char* FrameGuard::OnHeaderBlock() {
  block_bytes_ += skip_;
  if (block_bytes_ > kHeaderBlockBytesMax || ++block_frames_ > kHeaderFramesMax) {
    return "the headers of a call are longer than those of any client of ddprun's";
  }
  return nullptr;
}

}  // namespace ddprun
