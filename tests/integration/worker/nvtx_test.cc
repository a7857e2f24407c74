// SPDX-License-Identifier: Apache-2.0
// The sections of a step as a tool like Nsight Systems sees them. NVTX needs no GPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "worker/profile/profiler.h"

namespace ddprun {
namespace {

// A world on a device, as far as the sections ask.
class WorldOn : public World {
 public:
  explicit WorldOn(at::Device device) : World(WorkerEnv{}), device_(device) {}
  at::Device device() const override { return device_; }
  const std::string& backend_name() const override { return name_; }
  const std::string& device_note() const override { return note_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const override { return group_; }
  const c10::intrusive_ptr<c10d::Store>& store() const override { return store_; }
  void AllReduceSum(at::Tensor&) override {}
  void Broadcast(at::Tensor&, int) override {}
  void Barrier() override {}
  void ExpectPeersSoon(bool) override {}
  void Synchronize() override {}
  World& Subgroup(const std::string&, const std::vector<int>&) override { return *this; }
  void Shutdown() override {}

 private:
  const at::Device device_;
  const std::string name_ = "none";
  const std::string note_;
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const c10::intrusive_ptr<c10d::Store> store_;
};

// What the tool has recorded; empty as long as it is not loaded.
std::vector<std::string> Recorded() {
  std::vector<std::string> events;
  void* tool = dlopen(DDPRUN_TEST_NVTX_RECORDER, RTLD_NOW | RTLD_NOLOAD);
  if (tool == nullptr) return events;
  const auto size = reinterpret_cast<unsigned (*)()>(dlsym(tool, "nvtx_recorder_size"));
  const auto event =
      reinterpret_cast<const char* (*)(unsigned)>(dlsym(tool, "nvtx_recorder_event"));
  for (unsigned i = 0; i < size(); ++i) events.emplace_back(event(i));
  return events;
}

TEST(Nvtx, SectionsOfAGpusStepsAreRanges) {
  setenv("NVTX_INJECTION64_PATH", DDPRUN_TEST_NVTX_RECORDER, 1);
  StepClock on_cpu;
  ShowSectionsInNvtx(WorldOn(at::kCPU), on_cpu);
  on_cpu.Enter(StepSection::kData);
  EXPECT_THAT(Recorded(), testing::IsEmpty());

  StepClock clock;
  ShowSectionsInNvtx(WorldOn(at::Device(at::kCUDA, 0)), clock);
  clock.Enter(StepSection::kForward);
  clock.Enter(StepSection::kBackward);
  clock.EndStep();
  EXPECT_THAT(Recorded(),
              testing::ElementsAre("+other", "-", "+forward", "-", "+backward", "-", "+other"));
}

}  // namespace
}  // namespace ddprun
