// SPDX-License-Identifier: Apache-2.0
#include "worker/train/datasets/image_folder.h"

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/input_file.h"
#include "proto/json_text.h"
#include "rendezvous/base/random.h"
#include "worker/train/data/augment.h"
#include "worker/train/data/image_decoder.h"
#include "worker/train/data/sample_split.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::array<float, 3> kMean = {0.485f, 0.456f, 0.406f};  // ImageNet's
constexpr std::array<float, 3> kStd = {0.229f, 0.224f, 0.225f};
constexpr double kAreaMin = 0.08;
constexpr int kCropAttempts = 10;
constexpr std::int64_t kSideMax = 8192;  // 800 MB of one image

double Uniform(SplitMix64& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.Next() >> 11) * 0x1p-53;
}

std::int64_t UpTo(SplitMix64& random, std::int64_t most) {
  return random.Below(static_cast<std::uint32_t>(most + 1));
}

// The largest of 1, 2, 4 and 8 by which `pixels` of an image may be divided and still be no fewer
// than the `side` that is made of them.
int Denominator(std::int64_t pixels, std::int64_t side) {
  int denominator = 1;
  while (denominator < kJpegDenominatorMax && pixels / (2 * denominator) >= side) denominator *= 2;
  return denominator;
}

// Bytes, height x width x 3. The image must outlive the tensor.
at::Tensor PixelsOf(const RgbImage& image) {
  return at::from_blob(const_cast<std::uint8_t*>(image.pixels.data()),
                       {image.size.height, image.size.width, 3}, at::kByte);
}

// Bilinear with antialiasing, as torchvision does it.
at::Tensor Resize(const at::Tensor& pixels, ImageSize size) {
  return at::_upsample_bilinear2d_aa(pixels.permute({2, 0, 1}).unsqueeze(0),
                                     {size.height, size.width}, /*align_corners=*/false)
      .squeeze(0)
      .permute({1, 2, 0});
}

// The middle `size` pixels of a side, or all if there are fewer. An odd margin is one pixel less
// before it than after it, as transformers cuts: an exported model sees the same pixels there.
// (torchvision's CenterCrop rounds half a pixel to an even number.)
at::Tensor Middle(const at::Tensor& pixels, int side, std::int64_t size) {
  const std::int64_t all = pixels.size(side);
  if (size >= all) return pixels;
  return pixels.narrow(side, (all - size) / 2, size);
}

// The pixels that show the part from `begin` on of a side that is `whole` pixels long in the file.
at::Tensor Part(const at::Tensor& pixels, int side, std::int64_t begin, std::int64_t length,
                std::int64_t whole) {
  const std::int64_t decoded = pixels.size(side);
  const std::int64_t first = std::min(begin * decoded / whole, decoded - 1);
  const std::int64_t end =
      std::clamp(((begin + length) * decoded + whole - 1) / whole, first + 1, decoded);
  return pixels.narrow(side, first, end - first);
}

at::Tensor TrainingView(const at::Tensor& pixels, const CropBox& box, ImageSize size,
                        std::int64_t side) {
  const at::Tensor rows = Part(pixels, 0, box.top, box.height, size.height);
  return Resize(Part(rows, 1, box.left, box.width, size.width), {side, side});
}

// torchvision's Resize(shorter): the longer side in proportion, cut down to whole pixels.
ImageSize Resized(ImageSize size, std::int64_t shorter) {
  if (size.height <= size.width) return {shorter, shorter * size.width / size.height};
  return {shorter * size.height / size.width, shorter};
}

at::Tensor TestView(at::Tensor pixels, ImageSize size, std::int64_t shorter, std::int64_t side) {
  // Only the middle of a very long image is resized: the rest would take memory and not be seen.
  constexpr std::int64_t kLongestSide = 8;  // times the shorter one
  const ImageSize seen{std::min(size.height, kLongestSide * size.width),
                       std::min(size.width, kLongestSide * size.height)};
  pixels = Middle(pixels, 0, std::max<std::int64_t>(1, pixels.size(0) * seen.height / size.height));
  pixels = Middle(pixels, 1, std::max<std::int64_t>(1, pixels.size(1) * seen.width / size.width));
  const at::Tensor resized = Resize(pixels, Resized(seen, shorter));
  return Middle(Middle(resized, 0, side), 1, side);
}

// Which classes have no test images, if any: a note.
std::string Untested(const ImageFiles& test, const std::vector<std::string>& classes) {
  std::vector<bool> tested(classes.size(), false);
  for (std::int64_t i = 0; i < test.size(); ++i)
    tested[static_cast<std::size_t>(test.Label(i))] = true;
  const auto count = std::count(tested.begin(), tested.end(), false);
  if (count == 0) return "";
  const auto first =
      static_cast<std::size_t>(std::find(tested.begin(), tested.end(), false) - tested.begin());
  return (count == 1 ? "class " + classes[first] + " has"
                     : std::to_string(count) + " of " + std::to_string(classes.size()) +
                           " classes (the first: " + classes[first] + ") have") +
         " no test images in " + test.folder() + "; the test accuracy is that of the others";
}

// Where the images of a data set lie.
struct Layout {
  fs::path train;  // has a folder for each class
  fs::path test;   // as well
  bool has_train = false, has_test = false;
};

bool HasFolders(const fs::path& root) {
  std::error_code error;
  fs::directory_iterator entries(root, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::error_code none;
    if (entries->path().filename().native()[0] != '.' && entries->is_directory(none)) return true;
  }
  return false;
}

Layout LayoutOf(const fs::path& root) {
  std::error_code error;
  Layout layout{.train = root / "train", .test = root / "val"};
  layout.has_train = fs::is_directory(layout.train, error);
  layout.has_test = fs::is_directory(layout.test, error);
  if (!layout.has_test && fs::is_directory(root / "test", error)) {
    layout.test = root / "test";
    layout.has_test = true;
  }
  // A flat folder: its classes are what train/ would have.
  const bool is_flat = !layout.has_train && !layout.has_test && fs::is_directory(root, error);
  if (is_flat && HasFolders(root)) layout.train = root;
  return layout;
}

void CheckShare(const Layout& layout, const DatasetOptions& options) {
  const std::string& root = options.directory;
  if (options.val_share > 0 && layout.has_test)
    throw DataError("--val-share sets images aside for testing, but those in " +
                    layout.test.string() +
                    " are there for it; pass --val-share 0 or another --data-dir");
  const bool is_flat = !layout.has_train && layout.train == root;
  if (options.val_share > 0 || layout.has_test || (!is_flat && !layout.has_train)) return;
  throw DataError(root + " has no folder val or test with images to test on" +
                  (is_flat ? ", and none called train" : "") +
                  "; pass --val-share 0.1 to test on a tenth of each class's images in " +
                  layout.train.string() + ", or make " + (is_flat ? "train/CLASS/ and " : "") +
                  "val/CLASS/ there");
}

SampleSplit SplitOf(const ImageFiles& images, const DatasetOptions& options) {
  std::vector<SplitSample> samples;
  for (std::int64_t i = 0; i < images.size(); ++i)
    samples.push_back({.label = images.Label(i), .name = images.Name(i)});
  SampleSplit split = SplitSamples(samples, options.val_share, options.seed);
  if (split.test.empty())
    throw DataError(images.folder() +
                    ": --val-share has no image to set aside, as each class has only one; add "
                    "images");
  return split;
}

}  // namespace

CropBox RandomCrop(ImageSize size, const Draw& draw) {
  SplitMix64 random({draw.seed, draw.epoch, draw.position});
  const bool mirrored = Mirrored(draw, random.Below(2) == 1);
  const auto height = static_cast<double>(size.height);
  const auto width = static_cast<double>(size.width);
  for (int i = 0; i < kCropAttempts; ++i) {
    const double area = height * width * Uniform(random, kAreaMin, 1);
    const double ratio = std::exp(Uniform(random, std::log(3.0 / 4), std::log(4.0 / 3)));
    const std::int64_t w = std::llround(std::sqrt(area * ratio));
    const std::int64_t h = std::llround(std::sqrt(area / ratio));
    if (w < 1 || h < 1 || w > size.width || h > size.height) continue;
    const std::int64_t top = UpTo(random, size.height - h);
    return {top, UpTo(random, size.width - w), h, w, mirrored};
  }
  // Too long for any of them: the middle, as long as it may be.
  const std::int64_t w = std::min<std::int64_t>(size.width, std::llround(height * 4 / 3));
  const std::int64_t h = std::min<std::int64_t>(size.height, std::llround(width * 4 / 3));
  return {(size.height - h) / 2, (size.width - w) / 2, h, w, mirrored};
}

std::string ImageFolder::Read(std::int64_t index) const {
  absl::StatusOr<std::string> file = ReadRegularFile(Path(index), kImageFileBytesMax);
  if (file.ok()) return *std::move(file);
  Fail(index, ImageError(std::string(file.status().message())));
}

void ImageFolder::Fail(std::int64_t index, const ImageError& error) const {
  throw DamagedSample(Path(index) + ": " + error.what(), error.next_move);
}

// At an eighth of its size a JPEG is read as a whole, and little of it is computed.
void ImageFolder::Check(std::int64_t index) const {
  const std::string file = Read(index);
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(file.data()), file.size());
  try {
    ReadImageSize(bytes);
    DecodeImage(bytes, kJpegDenominatorMax);
  } catch (const ImageError& error) {
    Fail(index, error);
  }
}

void ImageFolder::Write(std::int64_t index, const Draw* draw, bool channels_last,
                        float* out) const {
  const std::string file = Read(index);
  try {
    WriteImage({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, options_, draw,
               channels_last, out);
  } catch (const ImageError& error) {
    Fail(index, error);
  }
}

void ImageFolder::WriteImage(std::span<const std::uint8_t> bytes, const Options& options,
                             const Draw* draw, bool channels_last, float* out) {
  const std::int64_t side = options.side;
  const ImageSize size = ReadImageSize(bytes);
  const CropBox box = draw ? RandomCrop(size, *draw) : CropBox{0, 0, size.height, size.width};
  const RgbImage image = DecodeImage(
      bytes, Denominator(std::min(box.height, box.width), draw ? side : options.shorter_side));
  const at::Tensor decoded = PixelsOf(image);
  const at::Tensor seen = (draw ? TrainingView(decoded, box, size, side)
                                : TestView(decoded, size, options.shorter_side, side))
                              .contiguous();
  const auto* pixels = seen.const_data_ptr<std::uint8_t>();
  const std::int64_t pixel_stride = channels_last ? 3 : 1;
  const std::int64_t channel_stride = channels_last ? 1 : side * side;
  for (std::int64_t c = 0; c < 3; ++c) {
    const auto channel = static_cast<std::size_t>(c);
    const float factor = 1 / (255 * options.std[channel]);
    const float offset = options.mean[channel] / options.std[channel];
    for (std::int64_t y = 0; y < side; ++y) {
      for (std::int64_t x = 0; x < side; ++x) {
        const std::int64_t to = box.mirrored ? side - 1 - x : x;
        out[(y * side + to) * pixel_stride + c * channel_stride] =
            static_cast<float>(pixels[(y * side + x) * 3 + c]) * factor - offset;
      }
    }
  }
}

Dataset OpenImageFolder(const DatasetOptions& options) {
  if (options.directory.empty()) {
    throw DataError("--dataset imagefolder has no folder of its own; pass --data-dir");
  }
  if (options.input_size > kSideMax) {
    throw DataError("--input-size " + std::to_string(options.input_size) + " is more than the " +
                    std::to_string(kSideMax) + " pixels that an image may be brought to");
  }
  const fs::path root = options.directory;
  const Layout layout = LayoutOf(root);
  CheckShare(layout, options);
  Dataset set{.mean = {kMean.begin(), kMean.end()}, .std = {kStd.begin(), kStd.end()}};
  const std::vector<std::string> folders = ListClasses(layout.train);
  for (const std::string& name : folders) set.class_names.push_back(Utf8Name(name));
  set.classes = static_cast<std::int64_t>(folders.size());
  PassedOver others;
  ImageFiles train = ListTrainingImages(layout.train, folders, others);
  const std::string classless = NoteOfClasslessImages(layout.train);
  std::vector<std::string> notes;
  const ImageFolder::Options shown{.side = options.input_size, .mean = set.mean, .std = set.std};
  if (options.val_share > 0) {
    SampleSplit split = SplitOf(train, options);
    const auto all = std::make_shared<ImageFolder>(std::move(train), shown);
    set.train = std::make_shared<SampleSubset>(all, std::move(split.train));
    set.test = std::make_shared<SampleSubset>(all, std::move(split.test));
    notes = {classless};
  } else {
    ImageFiles test = (IsAnnotated(layout.test) ? ListAnnotatedImages : ListTestImages)(
        layout.test, folders, others);
    notes = {Untested(test, set.class_names), classless, NoteOfClasslessImages(layout.test)};
    set.train = std::make_shared<ImageFolder>(std::move(train), shown);
    set.test = std::make_shared<ImageFolder>(std::move(test), shown);
  }
  notes.push_back(others.Sentence());
  for (std::string& note : notes) {
    if (!note.empty()) set.notes.push_back(std::move(note));
  }
  return set;
}

namespace {

const bool kImageFolderAdded = Datasets().Add("imagefolder", OpenImageFolder);

}  // namespace
}  // namespace ddprun
