// SPDX-License-Identifier: Apache-2.0
// Watches the HTTP/2 frames that a client sends, before gRPC reads them. gRPC 1.51 bounds the
// headers of a frame but not those of a call that has many (CVE-2023-33953), and it makes calls
// faster than it can end those that are reset: either takes gigabytes within seconds. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

class FrameGuard {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit FrameGuard(TimePoint now);

  // What has come next, from the connection's first byte on. A sentence: the connection is to be
  // ended; null: it is well.
  const char* Feed(absl::string_view bytes, TimePoint now);

 private:
  // So many at once, and so many a second.
  struct Allowance {
    double burst = 0;
    double per_second = 0;
    double left = burst;
    TimePoint at{};
    bool Take(TimePoint now);
  };

  const char* OnFrame(TimePoint now);
  const char* OnHeaderBlock(std::size_t size, bool begins);

  std::size_t preface_left_;
  std::string header_;    // of the frame that is being read
  std::size_t skip_ = 0;  // bytes of its payload still to come
  std::size_t block_bytes_ = 0;
  std::size_t block_frames_ = 0;
  Allowance calls_;
  Allowance resets_;
  Allowance others_;
  const char* verdict_ = nullptr;
};

}  // namespace ddprun
