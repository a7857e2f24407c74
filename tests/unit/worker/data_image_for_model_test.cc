// SPDX-License-Identifier: Apache-2.0
// `train predict` shows a file to a model as an evaluation on the model's data set would.
#include "worker/train/datasets/image_for_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/unit/worker/data_fixture.h"
#include "tests/unit/worker/data_pictures.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/train/datasets/image_folder.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

ModelView ViewOf(const std::string& dataset, std::int64_t side) {
  return {.dataset = dataset,
          .shape = {3, side, side},
          .mean = {0.5f, 0.25f, 0.75f},
          .std = {0.25f, 0.5f, 0.2f}};
}

// Before it was normalised: 3 x height x width, 0 to 255.
at::Tensor Values(const ImageForModel& image, const ModelView& view) {
  const auto column = [](const std::vector<float>& values) {
    return at::tensor(values).view({3, 1, 1});
  };
  return image.pixels[0].mul(column(view.std)).add(column(view.mean)).mul(255).round();
}

at::Tensor PlanesOf(const RgbImage& image) {
  return at::tensor(at::ArrayRef<std::uint8_t>(image.pixels))
      .view({image.size.height, image.size.width, 3})
      .permute({2, 0, 1})
      .to(at::kFloat);
}

TEST(ImageForModel, OfAnImageFolderIsTheTestImage) {
  const TempFiles files;
  for (const char* name : {"train/a/1.png", "val/a/1.jpg"})
    files.Write(name, std::string(name).ends_with("png") ? Png(Gradient(48, 64, 120))
                                                         : Jpeg(Gradient(200, 90, 60)));
  const Dataset set = OpenImageFolder({.directory = files.folder(), .input_size = 32});
  for (const bool channels_last : {false, true}) {
    const auto image = ReadImageForModel(
        files.Path("val/a/1.jpg"),
        {.dataset = "imagefolder", .shape = set.shape(), .mean = set.mean, .std = set.std},
        channels_last);
    EXPECT_TRUE(at::equal(image.pixels, Images(*set.test)));
    EXPECT_FALSE(image.resized_from);
  }
}

TEST(ImageForModel, OfTheSizeOfTheDataSetIsTheImageItself) {
  const TempFiles files;
  const RgbImage picture = Gradient(32, 32, 7);
  files.Write("a.png", Png(picture));
  const ModelView view = ViewOf("cifar10", 32);
  const auto image = ReadImageForModel(files.Path("a.png"), view, /*channels_last=*/true);
  EXPECT_TRUE(at::equal(Values(image, view), PlanesOf(picture)));
  EXPECT_FALSE(image.resized_from);
}

TEST(ImageForModel, OfAnotherSizeIsResizedWhichIsTold) {
  const TempFiles files;
  files.Write("large.png", Png(Gradient(64, 128, 200)));
  files.Write("small.png", Png(Gradient(16, 16, 200)));
  const ModelView view = ViewOf("cifar10", 32);
  const auto large = ReadImageForModel(files.Path("large.png"), view, /*channels_last=*/false);
  ASSERT_TRUE(large.resized_from);
  EXPECT_EQ(large.resized_from->width, 128);
  const at::Tensor values = Values(large, view);
  // Of 64x32 pixels the middle 32: red goes from a quarter to three quarters.
  EXPECT_NEAR(values[0][5][0].item<double>(), 255 * 0.25, 3);
  EXPECT_NEAR(values[0][5][31].item<double>(), 255 * 0.75, 5);
  EXPECT_NEAR(values[1][31][5].item<double>(), 250, 5);
  EXPECT_EQ(values[2].min().item<double>(), 200);
  const auto small = ReadImageForModel(files.Path("small.png"), view, /*channels_last=*/false);
  EXPECT_TRUE(small.resized_from);
  EXPECT_EQ(Values(small, view)[2].min().item<double>(), 200) << "no black around it";
}

TEST(ImageForModel, OfGreyDigitsIsGreyInTheMiddleOfBlack) {
  const TempFiles files;
  const std::vector<std::uint8_t> grey(28 * 28, 77);
  files.Write("grey.png", Png(grey.data(), {28, 28}, PNG_FORMAT_GRAY));
  RgbImage red{{28, 28}, std::vector<std::uint8_t>(28 * 28 * 3, 0)};
  for (std::size_t i = 0; i < red.pixels.size(); i += 3) red.pixels[i] = 100;
  files.Write("red.png", Png(red));
  files.Write("large.png", Png(Gradient(33, 20)));
  const ModelView view = ViewOf("idx", 32);
  for (const auto& [name, value] : {std::pair{"grey.png", 77}, {"red.png", 30}}) {
    const auto image = ReadImageForModel(files.Path(name), view, /*channels_last=*/true);
    at::Tensor expected = at::zeros({3, 32, 32});
    expected.narrow(1, 2, 28).narrow(2, 2, 28).fill_(value);
    EXPECT_TRUE(at::equal(Values(image, view), expected)) << name;
  }
  EXPECT_EQ(
      MessageOf<DamagedSample>([&] { ReadImageForModel(files.Path("large.png"), view, false); }),
      files.Path("large.png") +
          ": is 20x33 pixels, but the images that the model was trained on have at most "
          "32x32; resize it to theirs");
}

TEST(ImageForModel, OfAFileThatIsNoneIsOneSentence) {
  const TempFiles files;
  files.Write("a.png", "text");
  const auto says = [&](const std::string& name) {
    return MessageOf<DamagedSample>(
        [&] { ReadImageForModel(files.Path(name), ViewOf("cifar10", 32), false); });
  };
  EXPECT_THAT(says("a.png"), HasSubstr("a.png: is no image: must be JPEG, PNG, PPM, PGM or BMP; "));
  EXPECT_THAT(says("gone.png"), HasSubstr("gone.png: No such file or directory; pass a whole "));
  EXPECT_THAT(says(""), HasSubstr("it is not a regular file; pass a whole "));
}

}  // namespace
}  // namespace ddprun
