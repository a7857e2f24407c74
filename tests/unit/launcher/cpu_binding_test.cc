// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/cpu_binding.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

#include "launcher/placement/devices.h"

namespace ddprun {
namespace {

// Bindings are a thread's own, so each test has one to lose.
template <typename Body>
void OnItsOwnThread(Body body) {
  std::thread(body).join();
}

TEST(CpuBindingTest, BindsToOneOfTheCpus) {
  OnItsOwnThread([] {
    const CpuSet all = AllowedCpus();
    ASSERT_FALSE(all.empty());
    ASSERT_TRUE(CpuBinding({all.back()}, {}).Apply());
    EXPECT_EQ(AllowedCpus(), CpuSet{all.back()});
  });
}

TEST(CpuBindingTest, NothingToBindChangesNothing) {
  OnItsOwnThread([] {
    const CpuSet before = AllowedCpus();
    ASSERT_TRUE(CpuBinding({}, {}).Apply());
    EXPECT_EQ(AllowedCpus(), before);
  });
}

TEST(CpuBindingTest, CpusThatAreNotThereAreRefused) {
  OnItsOwnThread([] {
    EXPECT_FALSE(CpuBinding({8000}, {}).Apply());
    EXPECT_EQ(errno, EINVAL);
  });
}

TEST(CpuBindingTest, ANodeThatIsNotThereIsNoError) {
  OnItsOwnThread([] { EXPECT_TRUE(CpuBinding({}, {1000}).Apply()); });
}

}  // namespace
}  // namespace ddprun
