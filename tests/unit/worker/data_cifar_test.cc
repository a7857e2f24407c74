// SPDX-License-Identifier: Apache-2.0
#include "worker/train/datasets/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/unit/worker/data_fixture.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/train/data/unpacked_file.h"

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
  EXPECT_EQ(set.train->size(), 10);
  EXPECT_EQ(set.test->size(), 1);
  EXPECT_EQ(set.classes, 10);
  EXPECT_EQ(set.shape().numel(), 3 * 32 * 32);
  EXPECT_EQ(set.train->Label(2), 2);
  EXPECT_EQ(set.train->Label(3), 9);
  // Green, row 1, column 2 of the third image (base 2): byte 1024 + 32 + 2.
  EXPECT_EQ(Bytes(set, *set.train, 2)[1][1][2].item<int>(), (2 + 1024 + 32 + 2) % 256);
  EXPECT_EQ(Bytes(set, *set.test, 0)[0][0][0].item<int>(), 77);
}

TEST(Cifar10, FindsTheFolderOfTheArchive) {
  const TempFiles files;
  WriteAll(files, "cifar-10-batches-bin/");
  EXPECT_EQ(OpenCifar10({.directory = files.folder()}).train->size(), 10);
}

TEST(Cifar10, DefaultIsWhereTheScriptUnpacksIt) {
  const TempFiles files;
  WriteAll(files, "data/cifar-10-batches-bin/");
  setenv("DDPRUN_CACHE_DIR", files.folder().c_str(), /*overwrite=*/1);
  EXPECT_EQ(OpenCifar10({}).train->size(), 10);
  unsetenv("DDPRUN_CACHE_DIR");
  setenv("XDG_CACHE_HOME", "/caches", /*overwrite=*/1);
  EXPECT_EQ(DataCacheFolder(), "/caches/ddprun/data");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/home/someone", /*overwrite=*/1);
  EXPECT_EQ(DataCacheFolder(), "/home/someone/.cache/ddprun/data");
}

TEST(Cifar10, AbsentFileIsNamedWithTheNextMove) {
  const TempFiles files;
  const auto message = MessageOf<DataError>([&] { OpenCifar10({.directory = files.folder()}); });
  EXPECT_THAT(message, AllOf(HasSubstr(files.Path("data_batch_1.bin")), HasSubstr("No such file"),
                             HasSubstr("deploy/fetch-data.sh"), HasSubstr("--data-dir")));
}

TEST(Cifar10, TheAdviceIsForTheDataSetThatWasAskedFor) {
  const TempFiles files;
  EXPECT_THAT(MessageOf<DataError>([&] { OpenCifar10({.directory = files.folder()}); }),
              HasSubstr("fetch-data.sh --dataset cifar10, or"));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenCifar100({.directory = files.folder()}); }),
              HasSubstr("fetch-data.sh --dataset cifar100, or"));
}

TEST(Cifar10, AnArchiveThatIsNotUnpackedIsNamed) {
  const TempFiles files;
  const std::string archive = files.Write("cifar-10-python.tar.gz", "");
  EXPECT_THAT(MessageOf<DataError>([&] { OpenCifar10({.directory = files.folder()}); }),
              AllOf(HasSubstr("has cifar-10-python.tar.gz, but not the files in it; unpack it"),
                    HasSubstr("tar -xzf " + archive + " -C " + files.folder())));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenCifar100({.directory = files.folder()}); }),
              HasSubstr("train.bin"));
  WriteAll(files, "cifar-10-batches-bin/");
  EXPECT_EQ(OpenCifar10({.directory = files.folder()}).train->size(), 10);
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

TEST(Cifar10, AFileCutOffBetweenRecordsIsToldByTheNumberOfThem) {
  const TempFiles files;
  WriteAll(files, "");
  files.Write("data_batch_4.bin", Record(1, 1));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenCifar10({.directory = files.folder()}); }),
              AllOf(HasSubstr("data_batch_4.bin has 1 images, but data_batch_1.bin has 2"),
                    HasSubstr("cut off")));
}

TEST(Cifar10, ATestFileCutOffBetweenRecordsIsToldByTheArchives) {
  const TempFiles files;
  WriteAll(files, "");
  // Holes of zeros: images of class 0 that take no room on the disk.
  for (int i = 1; i <= 5; ++i) {
    std::filesystem::resize_file(files.Path("data_batch_" + std::to_string(i) + ".bin"),
                                 10'000 * 3073);
  }
  std::filesystem::resize_file(files.Path("test_batch.bin"), 9'999 * 3073);
  EXPECT_THAT(MessageOf<DataError>([&] { OpenCifar10({.directory = files.folder()}); }),
              HasSubstr("test_batch.bin has 9999 images, but CIFAR-10's has 10000"));
  std::filesystem::resize_file(files.Path("test_batch.bin"), 10'000 * 3073);
  EXPECT_EQ(OpenCifar10({.directory = files.folder()}).test->size(), 10'000);
}

TEST(Cifar10, EmptyFileIsAFault) {
  const TempFiles files;
  EXPECT_THAT(MessageOf<DataError>([&] { MapCifarFile(files.Write("a.bin", ""), kCifar10); }),
              HasSubstr("a.bin: 0 bytes"));
}

TEST(Cifar10, LabelOutOfRangeIsToldWithItsImage) {
  const TempFiles files;
  const auto path = files.Write("a.bin", Record(3, 0) + Record(10, 0));
  EXPECT_THAT(MessageOf<DataError>([&] { MapCifarFile(path, kCifar10); }),
              AllOf(HasSubstr(path), HasSubstr("label 10 of image 1")));
}

TEST(Cifar10, FolderInPlaceOfAFileIsAFault) {
  const TempFiles files;
  files.Write("a.bin/inside", "x");
  EXPECT_THAT(MessageOf<DataError>([&] { MapCifarFile(files.Path("a.bin"), kCifar10); }),
              HasSubstr("a.bin"));
}

// The images of a file are not copied: two sets of it in one process have the same pages.
TEST(Cifar10, ImagesStayInTheFile) {
  const TempFiles files;
  const auto path = files.Write("a.bin", Record(1, 5) + Record(2, 6));
  const LabelledImages part = MapCifarFile(path, kCifar10);
  EXPECT_EQ(part.images.stride(0), 3073);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(3073 + 1);
  file << '\x63';
  file.close();
  EXPECT_EQ(part.images[1][0][0][0].item<int>(), 0x63);
}

std::string Record100(int coarse, int fine, int base) {
  return std::string(1, static_cast<char>(coarse)) + Record(fine, base);
}

TEST(Cifar100, TakesTheFineLabel) {
  const TempFiles files;
  files.Write("cifar-100-binary/train.bin", Record100(19, 99, 4) + Record100(3, 50, 7));
  files.Write("cifar-100-binary/test.bin", Record100(0, 1, 2));
  const Dataset set = OpenCifar100({.directory = files.folder()});
  EXPECT_EQ(set.classes, 100);
  EXPECT_EQ(set.train->Label(0), 99);
  EXPECT_EQ(set.train->Label(1), 50);
  EXPECT_EQ(Bytes(set, *set.train, 1)[0][0][1].item<int>(), 8);
  EXPECT_EQ(Bytes(set, *set.test, 0)[2][31][31].item<int>(), (2 + 3071) % 256);
}

TEST(Cifar100, FaultsAreToldWithTheFile) {
  const TempFiles files;
  const auto message = [&](const std::string& content) {
    const auto path = files.Write("train.bin", content);
    return MessageOf<DataError>([&] { MapCifarFile(path, kCifar100); });
  };
  EXPECT_THAT(message(Record(1, 1)),
              AllOf(HasSubstr("train.bin"), HasSubstr("CIFAR-100"), HasSubstr("3074")));
  EXPECT_THAT(message(Record100(1, 2, 3) + Record100(1, 100, 3)),
              HasSubstr("label 100 of image 1"));
}

// Whatever is cut or flipped: a sentence, or as many images as there are whole records.
TEST(Cifar10, DamageIsAFaultOrAnotherImage) {
  const TempFiles files;
  const std::string whole = Record(3, 9) + Record(4, 5);
  for (std::size_t length = 0; length <= whole.size(); length += 97) {
    const auto path = files.Write("a.bin", whole.substr(0, length));
    EXPECT_THROW(MapCifarFile(path, kCifar10), DataError) << length;
  }
  for (std::size_t at = 0; at < whole.size(); at += 61) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x40);
    const auto path = files.Write("a.bin", flipped);
    if (at % 3073 == 0) {
      EXPECT_THROW(MapCifarFile(path, kCifar10), DataError) << at;
    } else {
      EXPECT_EQ(MapCifarFile(path, kCifar10).size(), 2) << at;
    }
  }
}

}  // namespace
}  // namespace ddprun
