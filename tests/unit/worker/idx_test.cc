// SPDX-License-Identifier: Apache-2.0
#include "worker/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <zlib.h>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Number(std::uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string Images(std::uint32_t count, std::uint32_t side, int base = 0) {
  std::string bytes = Number(2051) + Number(count) + Number(side) + Number(side);
  for (std::uint32_t i = 0; i < count * side * side; ++i)
    bytes += static_cast<char>(base + static_cast<int>(i));
  return bytes;
}

std::string Labels(const std::string& labels) {
  return Number(2049) + Number(static_cast<std::uint32_t>(labels.size())) + labels;
}

void WriteCompressed(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

std::string Fault(const std::string& images, const std::string& labels) {
  const TempFiles files;
  const std::string images_path = files.Write("images", images);
  const std::string labels_path = files.Write("labels", labels);
  return MessageOf<DataError>([&] { ReadIdxPair(images_path, labels_path); });
}

TEST(Idx, ReadsImagesAndLabels) {
  const TempFiles files;
  const auto set = ReadIdxPair(files.Write("i", Images(3, 4)), files.Write("l", Labels({2, 0, 9})));
  EXPECT_EQ(set.images.sizes(), (std::vector<std::int64_t>{3, 1, 4, 4}));
  EXPECT_EQ(set.images[1][0][2][3].item<int>(), 16 + 8 + 3);
  EXPECT_EQ(set.labels[2].item<std::int64_t>(), 9);
}

TEST(Idx, FashionMnistIsPaddedAndShownOnThreeChannels) {
  const TempFiles files;
  files.Write("train-images-idx3-ubyte", Images(2, 28, 1));
  files.Write("train-labels-idx1-ubyte", Labels({1, 2}));
  WriteCompressed(files.Path("t10k-images-idx3-ubyte.gz"), Images(1, 28, 5));
  WriteCompressed(files.Path("t10k-labels-idx1-ubyte.gz"), Labels({7}));
  const Dataset set = OpenFashionMnist({.directory = files.folder()});
  EXPECT_EQ(set.train.images.sizes(), (std::vector<std::int64_t>{2, 1, 32, 32}));
  EXPECT_EQ(set.channels, 3);
  EXPECT_EQ(set.mean.size(), 3u);
  EXPECT_EQ(set.train.images[0][0][1][2].item<int>(), 0);  // padding
  EXPECT_EQ(set.train.images[0][0][2][2].item<int>(), 1);  // the first pixel
  EXPECT_EQ(set.test.images[0][0][2][3].item<int>(), 6);
  EXPECT_EQ(set.test.labels[0].item<std::int64_t>(), 7);
}

TEST(Idx, AbsentFileIsNamedWithTheNextMove) {
  const TempFiles files;
  EXPECT_THAT(MessageOf<DataError>([&] { OpenFashionMnist({.directory = files.folder()}); }),
              AllOf(HasSubstr(files.Path("train-images-idx3-ubyte")), HasSubstr(".gz"),
                    HasSubstr("--data-dir")));
}

TEST(Idx, ImagesOfAnotherSizeAreAFault) {
  const TempFiles files;
  files.Write("train-images-idx3-ubyte", Images(1, 20));
  files.Write("train-labels-idx1-ubyte", Labels({1}));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenFashionMnist({.directory = files.folder()}); }),
              HasSubstr("20x20"));
}

TEST(Idx, FaultsAreToldWithTheFile) {
  const std::string labels = Labels({1, 2});
  EXPECT_THAT(Fault("", labels),
              AllOf(HasSubstr("/images: ends before its magic number"), HasSubstr("--data-dir")));
  EXPECT_THAT(Fault(Number(2049) + Number(2), labels),
              AllOf(HasSubstr("starts with 2049"), HasSubstr("2051")));
  EXPECT_THAT(Fault(Number(2051) + Number(2), labels), HasSubstr("ends before its height"));
  EXPECT_THAT(Fault(Images(2, 4).substr(0, 40), labels),
              HasSubstr("too short, with 24 of the 32 bytes"));
  EXPECT_THAT(Fault(Images(2, 4) + "x", labels), HasSubstr("goes on after its 2 images"));
  EXPECT_THAT(Fault(Number(2051) + Number(0) + Number(4) + Number(4), labels),
              HasSubstr("claims 0 images"));
  EXPECT_THAT(Fault(Number(2051) + Number(0xffffffff) + Number(4096) + Number(4096), labels),
              HasSubstr("cannot be"));
  EXPECT_THAT(Fault(Images(2, 4), Number(2051) + Number(2)),
              HasSubstr("/labels: starts with 2051"));
  EXPECT_THAT(Fault(Images(2, 4), labels.substr(0, 9)),
              HasSubstr("/labels: is too short, with 1 of the 2"));
  EXPECT_THAT(Fault(Images(2, 4), Labels({1, 2, 3})),
              AllOf(HasSubstr("/labels"), HasSubstr("3 labels for the 2")));
  EXPECT_THAT(Fault(Images(2, 4), Labels({1, 11})),
              AllOf(HasSubstr("/labels"), HasSubstr("label 11 of image 1")));
}

TEST(Idx, CutOffCompressedFileIsAFault) {
  const TempFiles files;
  const std::string whole = files.Path("whole.gz");
  WriteCompressed(whole, Images(40, 28));
  std::filesystem::resize_file(whole, std::filesystem::file_size(whole) / 2);
  const auto message = MessageOf<DataError>(
      [&] { ReadIdxPair(whole, files.Write("l", Labels(std::string(40, '\1')))); });
  EXPECT_THAT(message, AllOf(HasSubstr(whole),
                             ::testing::AnyOf(HasSubstr("too short"), HasSubstr("decompressed"))));
}

TEST(Idx, DamagedCompressedFileIsAFault) {
  const TempFiles files;
  const std::string path = files.Path("damaged.gz");
  WriteCompressed(path, Images(40, 28));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path)) -
             8);  // the stored CRC-32
  file << "\1\2\3\4";
  file.close();
  EXPECT_THAT(MessageOf<DataError>(
                  [&] { ReadIdxPair(path, files.Write("l", Labels(std::string(40, '\1')))); }),
              AllOf(HasSubstr(path), HasSubstr("decompressed")));
}

}  // namespace
}  // namespace ddprun
