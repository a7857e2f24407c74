// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/checkpoint_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "tests/unit/worker/small_snapshot.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/library/files/crc32c.h"
#include "worker/library/files/safetensors.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

std::string Bytes(const Snapshot& snapshot) {
  CheckpointImage image;
  image.Fill(snapshot);
  return {image.bytes(), image.size()};
}

// Why `bytes` are no good checkpoint; empty if they are one.
std::string ReasonAgainst(const TempFiles& files, const std::string& bytes) {
  const std::string path = files.Write("a.safetensors", bytes);
  try {
    ReadCheckpoint(path);
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

TEST(Crc32cTest, IsTheOneOfTheStandard) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c("6789", 4, Crc32c("12345", 5)), 0xe3069283u);
  EXPECT_EQ(Crc32c("", 0), 0u);
  const std::string zeros(32, '\0');  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(zeros.data(), zeros.size()), 0x8a9136aau);
}

TEST(CheckpointFileTest, GivesBackWhatWasPutIn) {
  const TempFiles files;
  Snapshot snapshot{.about = {{"step", 12}, {"config", {{"model", "resnet18"}}}}};
  const auto random = [](std::vector<std::int64_t> sizes) { return at::randn(sizes); };
  snapshot.tensors = {
      {"plain", random({300, 200})},
      {"channels_last", random({4, 6, 3, 5}).contiguous(at::MemoryFormat::ChannelsLast)},
      {"half", random({4, 6, 3, 5}).to(at::kHalf).contiguous(at::MemoryFormat::ChannelsLast)},
      {"double", random({2, 3, 2, 2}).to(at::kDouble).contiguous(at::MemoryFormat::ChannelsLast)},
      {"turned", random({3, 7}).t()},
      {"learns", random({3}).requires_grad_()},
      {"number", at::full({}, 5, at::kLong)},
      {"bytes", at::arange(5, at::kByte)},
      {"empty", at::empty({0, 4})},
  };
  const std::string path = files.Write("a.safetensors", Bytes(snapshot));
  const Snapshot read = ReadCheckpoint(path);
  EXPECT_EQ(read.about, snapshot.about);
  ASSERT_EQ(read.tensors.size(), snapshot.tensors.size());
  for (const auto& [name, tensor] : snapshot.tensors) {
    const auto found = std::find_if(read.tensors.begin(), read.tensors.end(),
                                    [&, &n = name](const auto& item) { return item.first == n; });
    ASSERT_NE(found, read.tensors.end()) << name;
    EXPECT_EQ(found->second.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(found->second, tensor.detach())) << name;
  }
}

TEST(CheckpointFileTest, AnImageIsFilledAgain) {
  CheckpointImage image;
  image.Fill({.tensors = {{"w", at::ones({1000})}}});
  const char* const memory = image.bytes();
  image.Fill(SmallSnapshot(3));
  EXPECT_EQ(image.bytes(), memory);
  EXPECT_EQ(std::string(image.bytes(), image.size()), Bytes(SmallSnapshot(3)));
}

// In place: a file that is cut and written anew is forced to the disk by ext4.
void FlipBit(const std::string& path, std::uint64_t bit) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  char byte = 0;
  ASSERT_EQ(pread(fd, &byte, 1, static_cast<off_t>(bit / 8)), 1);
  byte = static_cast<char>(byte ^ (1 << bit % 8));
  ASSERT_EQ(pwrite(fd, &byte, 1, static_cast<off_t>(bit / 8)), 1);
  close(fd);
}

TEST(CheckpointFileTest, EveryFlippedBitIsFound) {
  const TempFiles files;
  const std::string path = files.Write("a.safetensors", Bytes(SmallSnapshot(5)));
  ASSERT_NO_THROW(ReadCheckpoint(path));
  const auto bits = 8 * std::filesystem::file_size(path);
  for (std::uint64_t bit = 0; bit < bits; ++bit) {
    FlipBit(path, bit);
    const std::string reason = MessageOf<CheckpointError>([&] { ReadCheckpoint(path); });
    ASSERT_THAT(reason, HasSubstr(path)) << "bit " << bit;
    ASSERT_EQ(reason.find('\n'), std::string::npos) << reason;
    FlipBit(path, bit);
  }
  EXPECT_NO_THROW(ReadCheckpoint(path));
}

// DDPRUN_BIT_FLIPS=10000 is the long form.
TEST(CheckpointFileTest, RandomFlippedBitsOfALargeFileAreFound) {
  const char* const wanted = std::getenv("DDPRUN_BIT_FLIPS");
  const int flips = wanted ? std::atoi(wanted) : 1000;
  const TempFiles files;
  const std::string path =
      files.Write("a.safetensors", Bytes({.tensors = {{"w", at::randn({300'000})},
                                                      {"v", at::randn({100, 1000})},
                                                      {"b", at::arange(100, at::kByte)}}}));
  const auto bits = 8 * std::filesystem::file_size(path);
  std::mt19937_64 random(7);
  int found = 0;
  for (int i = 0; i < flips; ++i) {
    const std::uint64_t bit = random() % bits;
    FlipBit(path, bit);
    try {
      ReadCheckpoint(path);
      ADD_FAILURE() << "bit " << bit;
    } catch (const CheckpointError&) {
      ++found;
    }
    FlipBit(path, bit);
  }
  EXPECT_EQ(found, flips);
  EXPECT_NO_THROW(ReadCheckpoint(path));
}

TEST(CheckpointFileTest, EveryOtherLengthIsFound) {
  const TempFiles files;
  const std::string bytes = Bytes(SmallSnapshot(5));
  EXPECT_EQ(ReasonAgainst(files, bytes), "");
  EXPECT_NE(ReasonAgainst(files, bytes + '\0'), "");
  EXPECT_NE(ReasonAgainst(files, bytes + bytes), "");
  const std::string path = files.Write("b.safetensors", bytes);
  for (std::size_t size = bytes.size(); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    ASSERT_THROW(ReadCheckpoint(path), CheckpointError) << size;
  }
}

TEST(CheckpointFileTest, SaysWhatIsWrong) {
  const TempFiles files;
  std::string bytes = Bytes(SmallSnapshot(5));
  const std::size_t weight = bytes.size() - 4 - 5 - 6 * sizeof(float);
  bytes[weight] = static_cast<char>(bytes[weight] ^ 1);
  EXPECT_THAT(ReasonAgainst(files, bytes),
              HasSubstr("a.safetensors is damaged or none: the checksum of tensor 'model/weight'"));
  WriteSafetensors(files.Path("a"), {{"w", at::ones(3)}});
  EXPECT_THAT(MessageOf<CheckpointError>([&] { ReadCheckpoint(files.Path("a")); }),
              HasSubstr("it is no checkpoint"));
  EXPECT_THAT(MessageOf<CheckpointError>([&] { ReadCheckpoint(files.Path("none")); }),
              HasSubstr("cannot open " + files.Path("none") + ": No such file"));
  EXPECT_THROW(Bytes({.tensors = {{"checksum", at::ones(3)}}}), std::invalid_argument);
}

}  // namespace
}  // namespace ddprun
