// SPDX-License-Identifier: Apache-2.0
// Flags about workers that live and do not go on. Pure.
#pragma once

#include <chrono>
#include <vector>

#include "launcher/base/flags.h"

namespace ddprun {

enum class OnHang { kKill, kReport };

// 0: never.
struct HangOptions {
  std::chrono::milliseconds hang_timeout{
      0};  // without progress, of a worker that has reported some
  std::chrono::milliseconds init_timeout{0};       // of one that has not, since its start
  std::chrono::milliseconds heartbeat_timeout{0};  // without a byte of output, or progress
  OnHang on_hang = OnHang::kKill;
};

extern const std::vector<Flag> kHangFlags;

HangOptions ReadHangOptions(Reader& reader);

}  // namespace ddprun
