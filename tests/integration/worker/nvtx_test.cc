// SPDX-License-Identifier: Apache-2.0
// The sections of a step as a tool like Nsight Systems sees them. NVTX needs no GPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "tests/testing/lone_world.h"
#include "tests/testing/paths.h"
#include "worker/train/profile/profiler.h"

namespace ddprun {
namespace {

std::string Recorder() { return BuildPath("tests/libnvtx_recorder.so"); }

// What the tool has recorded; empty as long as it is not loaded.
std::vector<std::string> Recorded() {
  std::vector<std::string> events;
  void* tool = dlopen(Recorder().c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (tool == nullptr) return events;
  const auto size = reinterpret_cast<unsigned (*)()>(dlsym(tool, "nvtx_recorder_size"));
  const auto event =
      reinterpret_cast<const char* (*)(unsigned)>(dlsym(tool, "nvtx_recorder_event"));
  for (unsigned i = 0; i < size(); ++i) events.emplace_back(event(i));
  return events;
}

TEST(Nvtx, SectionsOfAGpusStepsAreRanges) {
  setenv("NVTX_INJECTION64_PATH", Recorder().c_str(), 1);
  StepClock on_cpu;
  ShowSectionsInNvtx(LoneWorld(at::kCPU), on_cpu);
  on_cpu.Enter(StepSection::kData);
  EXPECT_THAT(Recorded(), testing::IsEmpty());

  StepClock clock;
  ShowSectionsInNvtx(LoneWorld(at::Device(at::kCUDA, 0)), clock);
  clock.Enter(StepSection::kForward);
  clock.Enter(StepSection::kBackward);
  // A device's gradients are computed on a thread of its own.
  std::thread([&clock] { clock.Enter(StepSection::kGradients); }).join();
  clock.EndStep();
  EXPECT_THAT(Recorded(),
              testing::ElementsAre("+other", "-other", "+forward", "-forward", "+backward",
                                   "-backward", "+gradients", "-gradients", "+other"));
}

}  // namespace
}  // namespace ddprun
