// SPDX-License-Identifier: Apache-2.0
#include "worker/train/datasets/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "tests/unit/worker/data_fixture.h"
#include "tests/unit/worker/data_pictures.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/train/loader/loader.h"

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
  EXPECT_THAT(set.class_names, ElementsAre("cat", "dog"));
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
              AllOf(HasSubstr("/train has no folder val or test"),
                    HasSubstr("and none called train; pass --val-share 0.1 to test on a tenth")));
  EXPECT_THAT(MessageOf<DataError>(
                  [&] { OpenImageFolder({.directory = files_.folder(), .input_size = 100'000}); }),
              HasSubstr("--input-size 100000"));
  std::filesystem::create_directories(files_.Path("train/ape"));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("train/ape: has no .jpg"), HasSubstr("; put the class's")));
  files_.Write("train/ape/1.webp", "a WebP image");
  EXPECT_THAT(Fault(), HasSubstr("1 .webp (the first: " + files_.Path("train/ape/1.webp")));
  std::filesystem::remove_all(files_.Path("train/ape"));
  files_.Write("val/ape/1.png", Png(Gradient(4, 4)));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("val/ape has test images of a class that has no training"),
                             HasSubstr("; add those, or remove")));
  std::filesystem::remove_all(files_.Path("val/ape"));
  std::filesystem::remove_all(files_.Path("val/dog"));
  std::filesystem::remove(files_.Path("val/cat/2.png"));
  EXPECT_THAT(Fault(), HasSubstr("/val: has no test image of any class; put some into"));
  std::filesystem::remove_all(files_.Path("val/cat"));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("/val: has no folders"), HasSubstr("CLASS")));
  std::filesystem::remove_all(files_.Path("val"));
  EXPECT_THAT(Fault(), AllOf(HasSubstr(" has no folder val or test"), HasSubstr("--val-share 0.1"),
                             HasSubstr("/train, or make val/CLASS/ there")));
  std::filesystem::remove_all(files_.Path("train"));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("/train: No such file"), HasSubstr("--data-dir")));
}

TEST_F(ImageFolderTest, AShareOfAFlatFolderIsSetAside) {
  const DatasetOptions options{
      .directory = files_.Path("train"), .input_size = 32, .val_share = 0.5};
  const Dataset set = OpenImageFolder(options);
  EXPECT_THAT(set.class_names, ElementsAre("cat", "dog"));
  // The only cat is trained on, and one of the two dogs.
  ASSERT_EQ(set.train->size(), 2);
  ASSERT_EQ(set.test->size(), 1);
  EXPECT_EQ(set.test->Label(0), 1);
  const double trained = Bytes(set, *set.train, 1)[2].mean().item<double>();
  const double tested = Bytes(set, *set.test, 0)[2].mean().item<double>();
  EXPECT_NEAR(trained + tested, 60 + 30, 6) << "blue tells which image it is";
}

TEST_F(ImageFolderTest, AShareOfTrainIsSetAsideWhereNothingIsThereToTestOn) {
  std::filesystem::remove_all(files_.Path("val"));
  const Dataset set =
      OpenImageFolder({.directory = files_.folder(), .input_size = 32, .val_share = 0.5});
  EXPECT_EQ(set.train->size() + set.test->size(), 3);
}

TEST_F(ImageFolderTest, FaultsOfAShareAreToldWithTheNextMove) {
  const auto fault = [](const std::string& folder) {
    return MessageOf<DataError>(
        [&] { OpenImageFolder({.directory = folder, .input_size = 32, .val_share = 0.5}); });
  };
  EXPECT_THAT(fault(files_.folder()),
              AllOf(HasSubstr("those in " + files_.Path("val") + " are there"),
                    HasSubstr("pass --val-share 0")));
  std::filesystem::remove(files_.Path("train/dog/a.png"));
  EXPECT_THAT(fault(files_.Path("train")), HasSubstr("no image to set aside"));
}

// As torchvision's ImageFolder: by folder, then by name.
TEST_F(ImageFolderTest, ImagesInFoldersBelowAClassAreItsImages) {
  const std::string image = Png(Gradient(8, 8));
  for (const char* name : {"train/cat/images/1.PNG", "train/cat/b/c/2.png", "train/cat/z.png",
                           "train/cat/.cache/3.png", "train/dog/c.jpg/4.png"})
    files_.Write(name, image);
  std::filesystem::create_directory_symlink(files_.Path("val/cat"), files_.Path("train/dog/link"));
  const Dataset set = Open();
  const auto& train = dynamic_cast<const ImageFolder&>(*set.train);
  std::vector<std::string> paths;
  for (std::int64_t i = 0; i < train.size(); ++i)
    paths.push_back(train.Path(i).substr(files_.Path("train/").size()));
  EXPECT_THAT(paths, ElementsAre("cat/x.jpg", "cat/z.png", "cat/b/c/2.png", "cat/images/1.PNG",
                                 "dog/a.png", "dog/b.JPEG", "dog/c.jpg/4.png", "dog/link/2.png"));
  EXPECT_EQ(train.Label(3), 0);
  EXPECT_EQ(train.Label(4), 1);
}

TEST_F(ImageFolderTest, ALinkToAFolderAboveIsAFault) {
  std::filesystem::create_directory_symlink(files_.Path("train"), files_.Path("train/cat/again"));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("cat/again/cat/again"), HasSubstr("more than 16 folders"),
                             HasSubstr("; remove the symbolic link")));
}

TEST_F(ImageFolderTest, AClassMayHaveNoTestImages) {
  EXPECT_THAT(Open().notes, ElementsAre(HasSubstr("1 .txt")));
  std::filesystem::remove(files_.Path("val/cat/2.png"));
  const auto is_told = ElementsAre("class cat has no test images in " + files_.Path("val") +
                                       "; the test accuracy is that of the others",
                                   HasSubstr("1 .txt"));
  EXPECT_THAT(Open().notes, is_told);
  std::filesystem::remove(files_.Path("val/cat"));
  const Dataset set = Open();
  EXPECT_THAT(set.notes, is_told);
  ASSERT_EQ(set.test->size(), 1);
  EXPECT_EQ(set.test->Label(0), 1) << "the label is that of the training images";
  files_.Write("train/ape/1.png", Png(Gradient(4, 4)));
  EXPECT_THAT(Open().notes[0], HasSubstr("2 of 3 classes (the first: ape) have no test images"));
}

TEST_F(ImageFolderTest, FilesOfOtherKindsAreCounted) {
  for (const char* name : {"train/cat/2.webp", "train/cat/1.WEBP", "val/dog/more/3.gif",
                           "val/dog/nothing", "val/cat/.hidden.webp"})
    files_.Write(name, "no image");
  EXPECT_THAT(Open().notes,
              ElementsAre("5 files are passed over, being no .jpg, .jpeg, .png, .ppm, .pgm, .pnm "
                          "or .bmp: 2 .webp, 1 without an ending, 1 .gif, 1 .txt (the first: " +
                          files_.Path("train/cat/1.WEBP") + ")"));
  for (const char* ending : {"a", "b", "c"}) files_.Write(std::string("val/dog/1.") + ending, "");
  EXPECT_THAT(Open().notes[0], HasSubstr("1 .c, 2 more kinds (the first"));
}

TEST_F(ImageFolderTest, ImagesOfNoClassAreCounted) {
  files_.Write("train/b.png", Png(Gradient(4, 4)));
  files_.Write("train/a.jpg", Jpeg(Gradient(4, 4)));
  files_.Write("val/c.png", Png(Gradient(4, 4)));
  files_.Write("val/list.csv", "no image");
  EXPECT_THAT(Open().notes,
              ElementsAre("2 images lie in " + files_.Path("train") +
                              " itself and not in a class's folder, and are not used (the first: "
                              "a.jpg)",
                          HasSubstr("1 image lies in " + files_.Path("val")), HasSubstr("1 .txt")));
}

// Tiny ImageNet's val/.
TEST_F(ImageFolderTest, TestImagesMayHaveTheirClassesInAList) {
  std::filesystem::remove_all(files_.Path("val"));
  files_.Write("val/images/val_0.JPEG", Jpeg(Gradient(8, 8)));
  files_.Write("val/images/val_1.JPEG", Jpeg(Gradient(8, 8)));
  const auto list = [this](const std::string& lines) {
    files_.Write("val/val_annotations.txt", lines);
  };
  list("val_1.JPEG\tdog\t0\t0\t62\t62\nval_0.JPEG\tcat\t1\t1\t9\t9\n");
  const Dataset set = Open();
  ASSERT_EQ(set.test->size(), 2);
  EXPECT_EQ(set.test->Label(0), 1);
  EXPECT_EQ(dynamic_cast<const ImageFolder&>(*set.test).Path(1),
            files_.Path("val/images/val_0.JPEG"));
  list("val_1.JPEG\tdog\nval_0.JPEG\tape\n");
  EXPECT_THAT(Fault(), AllOf(HasSubstr("val_annotations.txt: line 2 is not"), HasSubstr("; get")));
  list("val_1.JPEG\tdog\nval_1.JPEG\tdog\n");
  EXPECT_THAT(Fault(), HasSubstr("line 2 names val_1.JPEG, which is not in images/"));
  list("val_1.JPEG\tdog\n");
  EXPECT_THAT(Fault(), HasSubstr("has no line for val_0.JPEG; get"));
  list("no tabulator\n");
  EXPECT_THAT(Fault(), HasSubstr("line 1 is not FILE<tab>CLASS"));
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
