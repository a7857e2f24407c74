// SPDX-License-Identifier: Apache-2.0
// How a test of gpu_test says that it needs what this machine does not have.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "worker/library/accelerator/accelerator.h"

namespace ddprun {

// Why a test that needs so many GPUs cannot run here; empty if it can. Asks the driver alone: on a
// machine without one nothing of CUDA is loaded; with one it is loaded before the test uses ATen.
inline std::string WhyNotHere(int devices) {
  const int count = DriverDeviceCount();
  if (count >= devices) {
    LoadAccelerator();
    return "";
  }
  return "needs " + std::to_string(devices) + (devices == 1 ? " GPU" : " GPUs") +
         ", and the driver shows " + (count == 0 ? "none" : std::to_string(count));
}

}  // namespace ddprun

// First in a test: skips it, with the reason, where there are fewer GPUs.
#define DDPRUN_NEEDS_GPUS(devices)                                           \
  if (const std::string why = ::ddprun::WhyNotHere(devices); !why.empty()) { \
    GTEST_SKIP() << why;                                                     \
  }                                                                          \
  static_assert(true, "takes the semicolon")
