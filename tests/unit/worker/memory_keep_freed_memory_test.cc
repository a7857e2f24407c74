// SPDX-License-Identifier: Apache-2.0
#include "worker/library/base/keep_freed_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

namespace ddprun {
namespace {

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which replace malloc()
long PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST(KeepFreedMemory, ASecondUseOfTheMemoryFaultsNoPageIn) {
  KeepFreedMemory();
  for (const int64_t floats : {int64_t{4} << 20, int64_t{16} << 20}) {
    at::ones({floats});
    const long before = PageFaults();
    at::ones({floats});
    EXPECT_LT(PageFaults() - before, 16) << floats << " floats are 256 small pages for each MiB";
  }
}
#endif

TEST(KeepFreedMemory, ATensorThatNoMemoryHoldsIsAnError) {
  KeepFreedMemory();
  EXPECT_THROW(at::empty({int64_t{1} << 60}), c10::Error);
}

}  // namespace
}  // namespace ddprun
