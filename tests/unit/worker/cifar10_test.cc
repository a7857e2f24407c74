// SPDX-License-Identifier: Apache-2.0
#include "worker/cifar10.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Its pixels are `base`, `base + 1`, ...
std::string Record(int label, int base) {
  std::string record(1, static_cast<char>(label));
  for (int i = 0; i < 3072; ++i) record += static_cast<char>(base + i);
  return record;
}

void WriteAll(const TempFiles& files, const std::string& folder) {
  for (int i = 1; i <= 5; ++i) {
    files.Write(folder + "data_batch_" + std::to_string(i) + ".bin", Record(i, i) + Record(9, 0));
  }
  files.Write(folder + "test_batch.bin", Record(0, 77));
}

TEST(Cifar10, ReadsRecordsInOrder) {
  const TempFiles files;
  WriteAll(files, "");
  const Dataset set = OpenCifar10({.directory = files.folder()});
  EXPECT_EQ(set.train.size(), 10);
  EXPECT_EQ(set.test.size(), 1);
  EXPECT_EQ(set.classes, 10);
  EXPECT_EQ(set.train.images.sizes(), (std::vector<std::int64_t>{10, 3, 32, 32}));
  EXPECT_EQ(set.train.labels[2].item<std::int64_t>(), 2);
  EXPECT_EQ(set.train.labels[3].item<std::int64_t>(), 9);
  // Green, row 1, column 2 of the third image (base 2): byte 1024 + 32 + 2.
  EXPECT_EQ(set.train.images[2][1][1][2].item<int>(), (2 + 1024 + 32 + 2) % 256);
  EXPECT_EQ(set.test.images[0][0][0][0].item<int>(), 77);
}

TEST(Cifar10, FindsTheFolderOfTheArchive) {
  const TempFiles files;
  WriteAll(files, "cifar-10-batches-bin/");
  EXPECT_EQ(OpenCifar10({.directory = files.folder()}).train.size(), 10);
}

TEST(Cifar10, DefaultIsWhereTheScriptUnpacksIt) {
  const TempFiles files;
  WriteAll(files, "data/cifar-10-batches-bin/");
  setenv("DDPRUN_CACHE_DIR", files.folder().c_str(), /*overwrite=*/1);
  EXPECT_EQ(OpenCifar10({}).train.size(), 10);
  unsetenv("DDPRUN_CACHE_DIR");
  setenv("XDG_CACHE_HOME", "/caches", /*overwrite=*/1);
  EXPECT_EQ(Cifar10DirectoryDefault(), "/caches/ddprun/data");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/home/someone", /*overwrite=*/1);
  EXPECT_EQ(Cifar10DirectoryDefault(), "/home/someone/.cache/ddprun/data");
}

TEST(Cifar10, AbsentFileIsNamedWithTheNextMove) {
  const TempFiles files;
  const auto message = MessageOf<DataError>([&] { OpenCifar10({.directory = files.folder()}); });
  EXPECT_THAT(message, AllOf(HasSubstr(files.Path("data_batch_1.bin")), HasSubstr("No such file"),
                             HasSubstr("deploy/fetch-data.sh"), HasSubstr("--data-dir")));
}

TEST(Cifar10, LastFileAbsentIsNamedToo) {
  const TempFiles files;
  WriteAll(files, "");
  std::filesystem::remove(files.Path("test_batch.bin"));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenCifar10({.directory = files.folder()}); }),
              HasSubstr("test_batch.bin"));
}

TEST(Cifar10, CutOffFileIsToldByItsSize) {
  const TempFiles files;
  WriteAll(files, "");
  files.Write("data_batch_3.bin", Record(1, 1).substr(0, 3000));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenCifar10({.directory = files.folder()}); }),
              AllOf(HasSubstr("data_batch_3.bin"), HasSubstr("3000 bytes"), HasSubstr("3073")));
}

TEST(Cifar10, EmptyFileIsAFault) {
  const TempFiles files;
  EXPECT_THAT(MessageOf<DataError>([&] { ReadCifar10Files({files.Write("a.bin", "")}); }),
              HasSubstr("a.bin: 0 bytes"));
}

TEST(Cifar10, LabelOutOfRangeIsToldWithItsImage) {
  const TempFiles files;
  const auto path = files.Write("a.bin", Record(3, 0) + Record(10, 0));
  EXPECT_THAT(MessageOf<DataError>([&] { ReadCifar10Files({path}); }),
              AllOf(HasSubstr(path), HasSubstr("label 10 of image 1")));
}

TEST(Cifar10, FolderInPlaceOfAFileIsAFault) {
  const TempFiles files;
  files.Write("a.bin/inside", "x");
  EXPECT_THAT(MessageOf<DataError>([&] { ReadCifar10Files({files.Path("a.bin")}); }),
              HasSubstr("a.bin"));
}

}  // namespace
}  // namespace ddprun
