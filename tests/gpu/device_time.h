// SPDX-License-Identifier: Apache-2.0
// How long a device takes for something, as part of a CUDA graph.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "worker/library/accelerator/accelerator.h"

namespace ddprun {

// The median of several runs, in microseconds, of one call of `work`, after which `synchronize`
// waits for the device.
inline double MedianMicroseconds(int calls, const std::function<void()>& work,
                                 const std::function<void()>& synchronize) {
  constexpr int kRuns = 9;
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) work();
    synchronize();
    const std::chrono::duration<double, std::micro> passed =
        std::chrono::steady_clock::now() - begin;
    times.push_back(passed.count() / calls);
  }
  std::sort(times.begin(), times.end());
  return times[kRuns / 2];
}

// Time of `work` on device 0, recorded once and replayed. One call comes first, so that libraries
// choose their kernels then. The thread must have a stream of its own.
inline double GraphMicroseconds(const std::function<void()>& work) {
  Accelerator& accelerator = LoadAccelerator();
  work();
  const auto graph = accelerator.GraphMaker()();
  graph->Capture(work);
  return MedianMicroseconds(
      200, [&] { graph->Replay(); }, [&] { accelerator.Synchronize(0); });
}

}  // namespace ddprun
