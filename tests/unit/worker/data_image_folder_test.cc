// SPDX-License-Identifier: Apache-2.0
#include "worker/datasets/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "tests/unit/worker/data_fixture.h"
#include "tests/unit/worker/data_pictures.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/loader/loader.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two classes; blue tells which image it is.
class ImageFolderTest : public ::testing::Test {
 protected:
  ImageFolderTest() {
    files_.Write("train/dog/b.JPEG", Jpeg(Gradient(80, 100, 30)));
    files_.Write("train/dog/a.png", Png(Gradient(64, 64, 60)));
    files_.Write("train/cat/x.jpg", Jpeg(Gradient(50, 40, 90)));
    files_.Write("train/cat/notes.txt", "not an image");
    files_.Write("train/.hidden/x.jpg", "not a class");
    files_.Write("val/dog/1.png", Png(Gradient(48, 64, 120)));
    files_.Write("val/cat/2.png", Png(Gradient(40, 40, 150)));
  }

  Dataset Open() const { return OpenImageFolder({.directory = files_.folder(), .input_size = 32}); }
  std::string Fault() const {
    return MessageOf<DataError>([&] { Open(); });
  }

  const TempFiles files_;
};

TEST_F(ImageFolderTest, ClassesAndFilesAreInTheirNamesOrder) {
  const Dataset set = Open();
  EXPECT_EQ(set.classes, 2);
  ASSERT_EQ(set.train->size(), 3);
  const auto& train = dynamic_cast<const ImageFolder&>(*set.train);
  EXPECT_THAT(train.classes(), ElementsAre("cat", "dog"));
  EXPECT_EQ(train.Path(1), files_.Path("train/dog/a.png"));
  for (const auto& [index, label, blue] : {std::tuple{0, 0, 90}, {1, 1, 60}, {2, 1, 30}}) {
    EXPECT_EQ(set.train->Label(index), label);
    EXPECT_NEAR(Bytes(set, *set.train, index)[2].mean().item<double>(), blue, 3);
  }
  EXPECT_EQ(set.test->size(), 2);
  EXPECT_EQ(set.shape().height, 32);
}

TEST_F(ImageFolderTest, ForTestingTheMiddleOfTheResizedImageIsTaken) {
  const Dataset set = Open();
  // 48x64 becomes 36x48, of which the middle 32x32 is from row 2 and column 8 on.
  const at::Tensor seen = Bytes(set, *set.test, 1);
  EXPECT_NEAR(seen[0][16][0].item<double>(), (8.5 * 64 / 48 - 0.5) * 255 / 64, 3);
  EXPECT_NEAR(seen[1][31][16].item<double>(), (33.5 * 48 / 36 - 0.5) * 255 / 48, 3);
}

TEST_F(ImageFolderTest, AnOddMarginIsOnePixelLessBeforeTheMiddleThanAfterIt) {
  // 36x47 of 48x63: the margin of 15 columns is 7 and 8. Columns are told by red.
  files_.Write("val/dog/1.png", Png(Gradient(48, 63, 120)));
  const at::Tensor seen = Bytes(Open(), *Open().test, 1);
  EXPECT_NEAR(seen[0][16][0].item<double>(), (7.5 * 63 / 47 - 0.5) * 255 / 63, 2);
}

TEST_F(ImageFolderTest, ForTrainingAPartIsTakenAsTheDrawSays) {
  const Dataset set = Open();
  at::Tensor planes = at::empty({3, 32, 32});
  at::Tensor pixels = at::empty({32, 32, 3});
  for (std::uint64_t position = 0; position < 20; ++position) {
    const Draw draw{.seed = 1, .epoch = 1, .position = position};
    set.train->Write(1, &draw, /*channels_last=*/false, planes.data_ptr<float>());
    set.train->Write(1, &draw, /*channels_last=*/true, pixels.data_ptr<float>());
    EXPECT_TRUE(pixels.permute({2, 0, 1}).equal(planes));
    // Red and green tell the column and the row: the middle of what is seen is that of the part.
    const CropBox box = RandomCrop({64, 64}, draw);
    const auto value = [&](std::int64_t c, std::int64_t y, std::int64_t x) {
      return (planes[c][y][x].item<double>() * set.std[static_cast<std::size_t>(c)] +
              set.mean[static_cast<std::size_t>(c)]) *
             64;  // in pixels
    };
    EXPECT_NEAR((value(0, 16, 15) + value(0, 16, 16)) / 2,
                static_cast<double>(box.left) + static_cast<double>(box.width) / 2 - 0.5, 1);
    EXPECT_NEAR((value(1, 15, 16) + value(1, 16, 16)) / 2,
                static_cast<double>(box.top) + static_cast<double>(box.height) / 2 - 0.5, 1);
    EXPECT_EQ(value(0, 16, 0) > value(0, 16, 31), box.mirrored);
  }
}

TEST(RandomCrop, HasTheAreasAndRatiosOfTorchvision) {
  double area_sum = 0;
  int mirrored = 0;
  constexpr int kDraws = 2000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const CropBox box = RandomCrop({400, 500}, {.position = i});
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_LE(box.top + box.height, 400);
    ASSERT_LE(box.left + box.width, 500);
    const double ratio = static_cast<double>(box.width) / static_cast<double>(box.height);
    EXPECT_GT(ratio, 0.74);
    EXPECT_LT(ratio, 1.35);
    area_sum += static_cast<double>(box.width * box.height) / (400 * 500);
    mirrored += box.mirrored ? 1 : 0;
  }
  EXPECT_NEAR(area_sum / kDraws, 0.453, 0.03);  // 0.54, less what does not fit
  EXPECT_NEAR(mirrored, kDraws / 2, 100);
}

TEST(RandomCrop, OfALongImageIsItsMiddle) {
  const CropBox box = RandomCrop({10, 10'000}, {});
  EXPECT_EQ(box.height, 10);
  EXPECT_EQ(box.width, 13);
  EXPECT_EQ(box.left, (10'000 - 13) / 2);
  EXPECT_EQ(RandomCrop({1, 1}, {}).height, 1);
}

TEST_F(ImageFolderTest, ALargeJpegIsSeenAsASmallOneOfTheSamePicture) {
  files_.Write("train/dog/b.JPEG", Jpeg(Gradient(640, 640, 30)));
  files_.Write("train/dog/a.png", Png(Gradient(640, 640, 30)));
  const Dataset set = Open();
  EXPECT_LT((Bytes(set, *set.train, 1) - Bytes(set, *set.train, 2)).abs().max().item<double>(), 6);
}

TEST_F(ImageFolderTest, TestMayStandForVal) {
  std::filesystem::rename(files_.Path("val"), files_.Path("test"));
  EXPECT_EQ(Open().test->size(), 2);
}

TEST_F(ImageFolderTest, FaultsOfTheFolderAreToldWithTheNextMove) {
  EXPECT_THAT(MessageOf<DataError>([] { OpenImageFolder({}); }), HasSubstr("--data-dir"));
  EXPECT_THAT(MessageOf<DataError>([&] { OpenImageFolder({.directory = files_.Path("train")}); }),
              AllOf(HasSubstr("train/train"), HasSubstr("--data-dir")));
  EXPECT_THAT(MessageOf<DataError>(
                  [&] { OpenImageFolder({.directory = files_.folder(), .input_size = 100'000}); }),
              HasSubstr("--input-size 100000"));
  std::filesystem::create_directories(files_.Path("val/ape"));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("val/ape"), HasSubstr("no .jpg")));
  files_.Write("val/ape/1.png", Png(Gradient(4, 4)));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("/train: has no class ape"), HasSubstr("/val;")));
  std::filesystem::remove_all(files_.Path("val/ape"));
  std::filesystem::remove_all(files_.Path("val/dog"));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("/val: has no class dog"), HasSubstr("/train;")));
  std::filesystem::remove_all(files_.Path("val/cat"));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("/val: has no folders"), HasSubstr("CLASS")));
  std::filesystem::remove_all(files_.Path("val"));
  EXPECT_THAT(Fault(), HasSubstr("/val: No such file"));
}

// In the middle of an epoch, in a loader's thread.
TEST_F(ImageFolderTest, ADamagedFileIsNamedWhenItsBatchIsDue) {
  const std::string whole = Jpeg(Gradient(50, 40, 90));
  files_.Write("train/dog/b.JPEG", whole.substr(0, whole.size() / 2));
  const Dataset set = Open();
  Loader loader(*set.train, {0, 1, 2}, 1, {.augment = true, .threads = 2});
  EXPECT_TRUE(loader.Next().has_value());
  EXPECT_TRUE(loader.Next().has_value());
  EXPECT_THAT(MessageOf<DataError>([&] { loader.Next(); }),
              AllOf(HasSubstr(files_.Path("train/dog/b.JPEG")), HasSubstr("damaged"),
                    HasSubstr("; replace or remove")));
  std::filesystem::remove(files_.Path("train/cat/x.jpg"));
  EXPECT_THAT(MessageOf<DataError>([&] { Bytes(set, *set.train, 0); }),
              AllOf(HasSubstr("train/cat/x.jpg"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace ddprun
