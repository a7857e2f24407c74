// SPDX-License-Identifier: Apache-2.0
// The kernels within libddprun_cuda.so, which opens without a driver: NVRTC has compiled each for
// each architecture, and the emulator of the tests knows each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/emulated_kernels.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/library/accelerator/kernel_images.h"
#include "worker/train/kernels/kernels.h"

namespace ddprun {
namespace {

#ifdef DDPRUN_HAS_KERNELS
TEST(EmbeddedKernels, AreThereForEachArchitecture) {
  std::vector<std::string> names;
  ASSERT_FALSE(LoadAccelerator().EmbeddedKernels().empty());
  for (const KernelModule& module : LoadAccelerator().EmbeddedKernels()) {
    SCOPED_TRACE(module.source);
    EXPECT_FALSE(module.kernels.empty());
    names.insert(names.end(), module.kernels.begin(), module.kernels.end());
    std::vector<int> machine_code;
    std::vector<int> ptx;
    for (const KernelImage& image : module.images) {
      (image.is_ptx ? ptx : machine_code).push_back(image.capability);
      EXPECT_TRUE(image.image.starts_with(image.is_ptx ? "//"
                                                       : "\x7f"
                                                         "ELF"));
      // The driver reads to there.
      if (image.is_ptx) {
        EXPECT_EQ(image.image.data()[image.image.size()], '\0');
      }
      for (const std::string& kernel : module.kernels)
        EXPECT_NE(image.image.find(kernel), std::string_view::npos) << kernel;
    }
    EXPECT_THAT(machine_code, testing::ElementsAre(80, 90, 100));
    EXPECT_THAT(ptx, testing::ElementsAre(80));
  }
  EXPECT_THAT(names, testing::UnorderedElementsAreArray(EmulatedKernels()->names()));
}
#endif

TEST(EmbeddedKernels, MachineCodeIsOfTheMajorVersionAndPtxForOthers) {
  const KernelModule module{.source = "a.cu",
                            .kernels = {"a"},
                            .images = {{80, true, "ptx 80"},
                                       {80, false, "sm_80"},
                                       {90, false, "sm_90"},
                                       {100, false, "sm_100"}}};
  const auto choose = [&](int capability) {
    const KernelImage* image = ImageFor(module, capability);
    return image == nullptr ? std::string_view("none") : image->image;
  };
  EXPECT_EQ(choose(75), "none");
  EXPECT_EQ(choose(80), "sm_80");
  EXPECT_EQ(choose(89), "sm_80");
  EXPECT_EQ(choose(90), "sm_90");
  EXPECT_EQ(choose(100), "sm_100");
  EXPECT_EQ(choose(103), "sm_100");
  EXPECT_EQ(choose(120), "ptx 80");
}

TEST(KernelsFor, ACpuHasNoneButATests) {
  EXPECT_EQ(KernelsFor(at::kCPU), nullptr);
  const auto emulator = EmulatedKernels();
  {
    const KernelsOnCpu on_cpu(*emulator);
    EXPECT_EQ(KernelsFor(at::kCPU), emulator.get());
    UseFusedKernels(false);
    EXPECT_EQ(KernelsFor(at::kCPU), nullptr);
    UseFusedKernels(true);
  }
  EXPECT_EQ(KernelsFor(at::kCPU), nullptr);
}

}  // namespace
}  // namespace ddprun
