// SPDX-License-Identifier: Apache-2.0
// Checks the HTTP/2 frames that a client sends, before gRPC reads them. gRPC 1.51 limits the
// headers of a frame but not those of a call that has many frames (CVE-2023-33953), and it creates
// calls faster than it ends those that are reset: either takes hundreds of MB within seconds. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/base/clock.h"

namespace ddprun {

class FrameGuard {
 public:
  explicit FrameGuard(TimePoint now);

  // Takes the next bytes of the connection, from its first byte on. Returns why the connection must
  // be closed, or null.
  const char* Feed(absl::string_view bytes, TimePoint now);

 private:
  // A token bucket.
  struct Allowance {
    double burst = 0;
    double per_second = 0;
    double left = burst;
    TimePoint at{};
    bool Take(TimePoint now);
  };

  const char* OnFrame(TimePoint now);
  const char* OnHeaderBlock();

  std::size_t preface_left_;
  std::string header_;    // of the frame that is being read
  std::size_t skip_ = 0;  // bytes of its payload still to come
  std::size_t block_bytes_ = 0;
  std::size_t block_frames_ = 0;
  Allowance calls_;
  Allowance resets_;
  const char* verdict_ = nullptr;
};

}  // namespace ddprun
