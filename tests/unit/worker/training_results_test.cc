// SPDX-License-Identifier: Apache-2.0
// What of a training can be told without a world: the folder for the result, the checksum.
#include "worker/train/training/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include "ddprun/detail/checksum.h"
#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PrepareFolder, MakesIt) {
  const TempFiles files;
  PrepareFolder("--output-dir", files.Path("a/b"));
  EXPECT_TRUE(std::filesystem::is_directory(files.Path("a/b")));
}

TEST(PrepareFolder, AFileInItsPlaceIsAFault) {
  const TempFiles files;
  const auto path = files.Write("file", "x");
  EXPECT_THAT(MessageOf<UsageError>([&] { PrepareFolder("--output-dir", path + "/inside"); }),
              AllOf(HasSubstr(path), HasSubstr("--output-dir")));
}

TEST(PrepareFolder, LeavesNothingBehind) {
  const TempFiles files;
  PrepareFolder("--output-dir", files.folder());
  EXPECT_TRUE(std::filesystem::is_empty(files.folder()));
}

// access() says yes to root.
TEST(PrepareFolder, OneThatTakesNoFileIsAFault) {
  EXPECT_THAT(MessageOf<UsageError>([] { PrepareFolder("--output-dir", "/proc/self"); }),
              AllOf(HasSubstr("--output-dir /proc/self cannot be written to: "),
                    HasSubstr("choose another folder")));
}

TEST(PrepareResults, AFolderInTheirPlaceIsAFault) {
  const TempFiles files;
  PrepareResults(files.folder(), "cifar_net.pth");
  files.Write("cifar_net.pth/inside", "x");
  EXPECT_THAT(MessageOf<UsageError>([&] { PrepareResults(files.folder(), "cifar_net.pth"); }),
              AllOf(HasSubstr("cifar_net.pth"), HasSubstr("is a folder")));
}

TEST(PrepareResults, AFifoInTheirPlaceIsAFault) {
  for (const char* name : {"cifar_net.pth", "cifar_net.pth.json", "summary.json"}) {
    const TempFiles files;
    ASSERT_EQ(mkfifo(files.Path(name).c_str(), 0600), 0);
    EXPECT_EQ(MessageOf<UsageError>([&] { PrepareResults(files.folder(), "cifar_net.pth"); }),
              "--output-dir: " + files.Path(name) +
                  ", which the results are written to, is not a regular file; remove it or choose "
                  "another --output-dir");
  }
}

TEST(PrepareResults, ALinkInTheirPlaceIsReplacedInTheEnd) {
  const TempFiles files;
  std::filesystem::create_symlink("/dev/null", files.Path("cifar_net.pth"));
  files.Write("summary.json", "{}");
  PrepareResults(files.folder(), "cifar_net.pth");
}

TEST(Checksum, IsOfTheNumbersInTheirOrder) {
  const at::Tensor a = at::randn({2, 3, 4, 4});
  const at::Tensor b = at::randn({5});
  const std::uint32_t both = Checksum({a, b});
  EXPECT_EQ(Checksum({a.contiguous(at::MemoryFormat::ChannelsLast), b.clone()}), both);
  EXPECT_NE(Checksum({b, a}), both);
  at::Tensor changed = b.clone();
  changed[4] += 1e-6;
  EXPECT_NE(Checksum({a, changed}), both);
  EXPECT_EQ(Checksum({at::tensor({'1', '2', '3', '4', '5', '6', '7', '8', '9'}, at::kByte)}),
            0xcbf43926u);
}

}  // namespace
}  // namespace ddprun
