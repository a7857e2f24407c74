// SPDX-License-Identifier: Apache-2.0
#include "worker/train/datasets/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>
#include <zlib.h>

#include <thread>

#include "tests/unit/worker/data_fixture.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/train/data/unpacked_file.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Unpacked copies lie in a cache of each test's own.
class Idx : public ::testing::Test {
 protected:
  Idx() { setenv("DDPRUN_CACHE_DIR", cache_.folder().c_str(), /*overwrite=*/1); }
  ~Idx() override { unsetenv("DDPRUN_CACHE_DIR"); }

  std::string copies() const { return cache_.Path("data/unpacked"); }
  std::vector<std::string> Copies() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(copies())) {
      if (entry.path().extension() != ".lock") names.push_back(entry.path());
    }
    return names;
  }

  const TempFiles cache_;
};

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
  return MessageOf<DataError>([&] { ReadIdxPair(images_path, labels_path, 10); });
}

TEST_F(Idx, ReadsImagesAndLabels) {
  const TempFiles files;
  const auto set =
      ReadIdxPair(files.Write("i", Images(3, 4)), files.Write("l", Labels({2, 0, 9})), 10);
  EXPECT_EQ(set.images.sizes(), (std::vector<std::int64_t>{3, 1, 4, 4}));
  EXPECT_EQ(set.images[1][0][2][3].item<int>(), 16 + 8 + 3);
  EXPECT_EQ(set.labels[2].item<std::int64_t>(), 9);
}

TEST_F(Idx, FashionMnistIsPaddedAndShownOnThreeChannels) {
  const TempFiles files;
  files.Write("train-images-idx3-ubyte", Images(2, 28, 1));
  files.Write("train-labels-idx1-ubyte", Labels({1, 2}));
  WriteCompressed(files.Path("t10k-images-idx3-ubyte.gz"), Images(1, 28, 5));
  WriteCompressed(files.Path("t10k-labels-idx1-ubyte.gz"), Labels({7}));
  const Dataset set = OpenFashionMnist({.directory = files.folder()});
  EXPECT_EQ(ddprun::Images(*set.train).sizes(), (std::vector<std::int64_t>{2, 3, 32, 32}));
  EXPECT_EQ(set.mean.size(), 3u);
  EXPECT_EQ(Bytes(set, *set.train, 0)[0][1][2].item<int>(), 0);  // padding
  EXPECT_EQ(Bytes(set, *set.train, 0)[2][2][2].item<int>(), 1);  // the first pixel
  EXPECT_EQ(Bytes(set, *set.test, 0)[1][2][3].item<int>(), 6);
  EXPECT_EQ(set.test->Label(0), 7);
}

TEST_F(Idx, AbsentFileIsNamedWithTheNextMove) {
  const TempFiles files;
  EXPECT_THAT(MessageOf<DataError>([&] { OpenFashionMnist({.directory = files.folder()}); }),
              AllOf(HasSubstr(files.Path("train-images-idx3-ubyte")), HasSubstr(".gz"),
                    HasSubstr("--data-dir")));
}

// MNIST's own page has dots in the names; torchvision makes folders below its root.
TEST_F(Idx, FilesAreFoundByTheNamesAndInTheFoldersThatAreInUse) {
  struct Layout {
    const char* below;
    const char* sign;
    bool compressed;
  };
  for (const auto& [below, sign, compressed] :
       {Layout{"", "-", true}, Layout{"", ".", false}, Layout{"", ".", true},
        Layout{"raw/", "-", false}, Layout{"FashionMNIST/raw/", "-", true},
        Layout{"FashionMNIST/raw/", ".", false}}) {
    const TempFiles files;
    for (const char* part : {"train", "t10k"}) {
      const auto write = [&](const std::string& kind, int dimensions, const std::string& bytes) {
        const std::string name = std::string(below) + part + "-" + kind + sign + "idx" +
                                 std::to_string(dimensions) + "-ubyte";
        files.Write(name, bytes);
        if (!compressed) return;
        std::filesystem::remove(files.Path(name));
        WriteCompressed(files.Path(name + ".gz"), bytes);
      };
      write("images", 3, Images(2, 28));
      write("labels", 1, Labels({1, 2}));
    }
    SCOPED_TRACE(std::string(below) + sign + (compressed ? "gz" : ""));
    EXPECT_EQ(OpenFashionMnist({.directory = files.folder()}).train->size(), 2);
    EXPECT_EQ(OpenIdx({.directory = files.folder()}).test->size(), 2);
  }
}

// A folder of the same name with the file in it is what Kaggle's archive unpacks to.
TEST_F(Idx, AFolderIsNoFile) {
  const TempFiles files;
  for (const char* name : {"train-images", "t10k-images"}) {
    files.Write(std::string(name) + "-idx3-ubyte/inner", "");
    files.Write(std::string(name) + ".idx3-ubyte", Images(2, 28));
  }
  files.Write("train-labels.idx1-ubyte", Labels({1, 2}));
  files.Write("t10k-labels.idx1-ubyte", Labels({1, 2}));
  EXPECT_EQ(OpenIdx({.directory = files.folder()}).train->size(), 2);
}

TEST_F(Idx, SeveralDataSetsInOneRootAreToldApart) {
  const TempFiles files;
  for (const std::string name : {"FashionMNIST", "MNIST"}) {
    for (const char* part : {"train", "t10k"}) {
      files.Write(name + "/raw/" + part + "-images-idx3-ubyte", Images(2, 28));
      files.Write(name + "/raw/" + part + "-labels-idx1-ubyte", Labels({1, 2}));
    }
  }
  EXPECT_EQ(OpenFashionMnist({.directory = files.folder()}).train->size(), 2);
  EXPECT_EQ(OpenIdx({.directory = files.Path("MNIST")}).train->size(), 2);
  EXPECT_THAT(
      MessageOf<DataError>([&] { OpenIdx({.directory = files.folder()}); }),
      AllOf(HasSubstr("has several data sets"), HasSubstr(files.Path("FashionMNIST/raw") + " and "),
            HasSubstr(files.Path("MNIST/raw") + "; for --dataset idx pass as --data-dir")));
}

TEST_F(Idx, TheAdviceIsForTheDataSetThatWasAskedFor) {
  const TempFiles files;
  EXPECT_THAT(MessageOf<DataError>([&] { OpenIdx({.directory = files.folder()}); }),
              AllOf(HasSubstr("nor train-images.idx3-ubyte"), HasSubstr("; for --dataset idx pass"),
                    ::testing::Not(HasSubstr("fashion"))));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenIdx({.directory = files.Path("none")}); }),
              HasSubstr(files.Path("none") + ": No such file or directory; for --dataset idx"));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenFashionMnist({.directory = files.folder()}); }),
              HasSubstr("; for --dataset fashion-mnist install"));
}

TEST_F(Idx, ImagesOfAnotherSizeAreAFault) {
  const TempFiles files;
  files.Write("train-images-idx3-ubyte", Images(1, 20));
  files.Write("train-labels-idx1-ubyte", Labels({1}));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenFashionMnist({.directory = files.folder()}); }),
              HasSubstr("20x20"));
}

TEST_F(Idx, FaultsAreToldWithTheFile) {
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
  // Before a byte of them is read, and memory for them taken.
  EXPECT_THAT(Fault(Images(2, 4), Number(2049) + Number(0xf0000000)),
              HasSubstr("4026531840 labels for the 2"));
  EXPECT_THAT(Fault(Number(2051) + Number(50'000'001) + Number(1) + Number(1), labels),
              HasSubstr("claims 50000001 images"));
  EXPECT_THAT(Fault(Images(2, 4), Labels({1, 11})),
              AllOf(HasSubstr("/labels"), HasSubstr("label 11 of image 1")));
}

TEST_F(Idx, CutOffCompressedFileIsAFault) {
  const TempFiles files;
  const std::string whole = files.Path("whole.gz");
  WriteCompressed(whole, Images(40, 28));
  std::filesystem::resize_file(whole, std::filesystem::file_size(whole) / 2);
  const auto message = MessageOf<DataError>(
      [&] { ReadIdxPair(whole, files.Write("l", Labels(std::string(40, '\1'))), 10); });
  EXPECT_THAT(message, AllOf(HasSubstr(whole),
                             ::testing::AnyOf(HasSubstr("too short"), HasSubstr("decompressed"))));
}

TEST_F(Idx, DamagedCompressedFileIsAFault) {
  const TempFiles files;
  const std::string path = files.Path("damaged.gz");
  WriteCompressed(path, Images(40, 28));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path)) -
             8);  // the stored CRC-32
  file << "\1\2\3\4";
  file.close();
  EXPECT_THAT(MessageOf<DataError>(
                  [&] { ReadIdxPair(path, files.Write("l", Labels(std::string(40, '\1'))), 10); }),
              AllOf(HasSubstr(path), HasSubstr("decompressed")));
}

TEST_F(Idx, AnyFourFilesHaveTheSizesOfTheirHeaders) {
  const TempFiles files;
  files.Write("train-images-idx3-ubyte", Images(2, 40, 1));
  files.Write("train-labels-idx1-ubyte", Labels({1, 46}));
  files.Write("t10k-images-idx3-ubyte", Images(1, 40, 5));
  files.Write("t10k-labels-idx1-ubyte", Labels({7}));
  const Dataset set = OpenIdx({.directory = files.folder()});
  EXPECT_EQ(set.classes, 47);
  EXPECT_EQ(ddprun::Images(*set.train).sizes(), (std::vector<std::int64_t>{2, 3, 40, 40}));
  EXPECT_NEAR(ddprun::Images(*set.train).mean().item<double>(), 0, 1e-3);
  EXPECT_NEAR(ddprun::Images(*set.train).std().item<double>(), 1, 1e-3);
  EXPECT_EQ(Bytes(set, *set.train, 1)[0][0][0].item<int>(), (1 + 1600) % 256);
}

TEST_F(Idx, WithoutAFolderOrWithOthersSizesIsAFault) {
  EXPECT_THAT(MessageOf<DataError>([] { OpenIdx({}); }), HasSubstr("--data-dir"));
  const TempFiles files;
  files.Write("train-images-idx3-ubyte", Images(1, 40));
  files.Write("train-labels-idx1-ubyte", Labels({1}));
  files.Write("t10k-images-idx3-ubyte", Images(1, 41));
  files.Write("t10k-labels-idx1-ubyte", Labels({1}));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenIdx({.directory = files.folder()}); }),
              AllOf(HasSubstr("t10k-images"), HasSubstr("41x41"), HasSubstr("40x40")));
}

TEST_F(Idx, CompressedImagesAreUnpackedOnceIntoACopyOfOnesOwn) {
  const TempFiles files;
  const auto path = files.Path("images.gz");
  WriteCompressed(path, Images(40, 28));
  const at::Tensor first = MapUnpacked(path, 16 + 40 * 784, "x");
  ASSERT_EQ(Copies().size(), 1u);
  struct stat before {};
  ASSERT_EQ(stat(Copies()[0].c_str(), &before), 0);
  struct stat folder {};
  ASSERT_EQ(stat(copies().c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 0777u, 0700u);
  const at::Tensor second = MapUnpacked(path, 16 + 40 * 784, "x");
  struct stat after {};
  ASSERT_EQ(stat(Copies()[0].c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(std::string(first.const_data_ptr<std::uint8_t>(),
                        first.const_data_ptr<std::uint8_t>() + first.numel()),
            Images(40, 28));
  EXPECT_EQ(std::memcmp(first.const_data_ptr<std::uint8_t>(), second.const_data_ptr<std::uint8_t>(),
                        static_cast<std::size_t>(first.numel())),
            0);
}

TEST_F(Idx, AChangedFileIsUnpackedAgainAndTheOldCopyGoes) {
  const TempFiles files;
  const auto path = files.Path("images.gz");
  WriteCompressed(path, Images(40, 28));
  const at::Tensor old = MapUnpacked(path, 16 + 40 * 784, "x");
  const auto old_names = Copies();
  WriteCompressed(path, Images(41, 28, 9));
  const at::Tensor fresh = MapUnpacked(path, 16 + 41 * 784, "x");
  EXPECT_EQ(std::string(fresh.const_data_ptr<std::uint8_t>(),
                        fresh.const_data_ptr<std::uint8_t>() + fresh.numel()),
            Images(41, 28, 9));
  EXPECT_EQ(std::string(old.const_data_ptr<std::uint8_t>(),
                        old.const_data_ptr<std::uint8_t>() + old.numel()),
            Images(40, 28));
  ASSERT_EQ(Copies().size(), 1u);
  EXPECT_NE(Copies(), old_names);
}

TEST_F(Idx, ACopyThatIsCutOffIsMadeAgain) {
  const TempFiles files;
  const auto path = files.Path("images.gz");
  WriteCompressed(path, Images(40, 28));
  MapUnpacked(path, 16 + 40 * 784, "x");
  std::filesystem::resize_file(Copies().at(0), 100);
  const at::Tensor bytes = MapUnpacked(path, 16 + 40 * 784, "x");
  EXPECT_EQ(std::string(bytes.const_data_ptr<std::uint8_t>(),
                        bytes.const_data_ptr<std::uint8_t>() + bytes.numel()),
            Images(40, 28));
}

TEST_F(Idx, RanksThatBeginAtOnceMakeOneCopy) {
  const TempFiles files;
  const auto path = files.Path("images.gz");
  WriteCompressed(path, Images(2000, 28));
  std::vector<at::Tensor> all(8);
  std::vector<std::thread> ranks;
  for (auto& bytes : all) {
    ranks.emplace_back([&] { bytes = MapUnpacked(path, 16 + 2000 * 784, "x"); });
  }
  for (auto& rank : ranks) rank.join();
  ASSERT_EQ(Copies().size(), 1u);
  for (const auto& bytes : all) {
    ASSERT_EQ(bytes.numel(), 16 + 2000 * 784);
    EXPECT_EQ(std::memcmp(bytes.const_data_ptr<std::uint8_t>(),
                          all[0].const_data_ptr<std::uint8_t>(), bytes.numel()),
              0);
  }
}

// A folder that is another kind of file cannot be written to, root or not.
TEST_F(Idx, WithoutACacheItGoesOnElsewhere) {
  const TempFiles files;
  const auto path = files.Path("images.gz");
  WriteCompressed(path, Images(40, 28));
  setenv("DDPRUN_CACHE_DIR", files.Write("no-folder", "x").c_str(), /*overwrite=*/1);
  const at::Tensor bytes = MapUnpacked(path, 16 + 40 * 784, "x");
  EXPECT_EQ(std::string(bytes.const_data_ptr<std::uint8_t>(),
                        bytes.const_data_ptr<std::uint8_t>() + bytes.numel()),
            Images(40, 28));
}

TEST_F(Idx, AFolderThatOthersMayWriteToIsNotUsed) {
  const TempFiles files;
  const auto path = files.Path("images.gz");
  WriteCompressed(path, Images(40, 28));
  std::filesystem::create_directories(copies());
  chmod(copies().c_str(), 0777);
  EXPECT_EQ(MapUnpacked(path, 16 + 40 * 784, "x").numel(), 16 + 40 * 784);
  EXPECT_THAT(Copies(), ::testing::IsEmpty());
}

// Whatever is cut or flipped: a sentence, or images of the right number.
TEST_F(Idx, DamageIsAFaultOrAnotherImage) {
  const TempFiles files;
  const auto labels = files.Write("labels", Labels({1, 2, 3}));
  const std::string whole = Images(3, 28);
  const auto packed = files.Path("whole.gz");
  WriteCompressed(packed, whole);
  std::ifstream file(packed, std::ios::binary);
  const std::string gzip{std::istreambuf_iterator<char>(file), {}};
  int good = 0;
  for (const std::string& bytes : {whole, gzip}) {
    const auto read = [&](const std::string& damaged) {
      const auto path = files.Write("images", damaged);
      try {
        good += ReadIdxPair(path, labels, 10).size() == 3 ? 1 : 0;
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr(files.folder()), HasSubstr("; ")));
      }
    };
    for (std::size_t length = 0; length < bytes.size(); length += 7) read(bytes.substr(0, length));
    for (std::size_t at = 0; at < bytes.size(); at += at < 64 ? 1 : 11) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      read(flipped);
    }
  }
  EXPECT_GT(good, 100);  // flipped pixels
}

}  // namespace
}  // namespace ddprun
