// SPDX-License-Identifier: Apache-2.0
// A folder of images laid out as ImageNet: train/CLASS/*.jpg and val/CLASS/*.jpg, or test/ instead
// of val/, or (--val-share) CLASS/*.jpg alone. Classes are the names of the folders, sorted; images
// may lie in folders below a class's. Files are decoded on demand in the loader's threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/train/data/dataset.h"
#include "worker/train/data/rgb_image.h"
#include "worker/train/datasets/image_files.h"

namespace ddprun {

// A part of an image, in its pixels.
struct CropBox {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool mirrored = false;
};

// torchvision's RandomResizedCrop(scale=(0.08, 1), ratio=(3/4, 4/3)) and RandomHorizontalFlip(), as
// a function of the draw.
CropBox RandomCrop(ImageSize size, const Draw& draw);

// The shorter side to which an evaluation resizes an image before it cuts out the middle, `side`
// pixels a side: side * 256 / 224.
constexpr std::int64_t EvaluationShorterSide(std::int64_t side) { return side * 256 / 224; }

// The most that is read of a file.
inline constexpr std::size_t kImageFileBytesMax = 1u << 30;

class ImageFolder : public SampleSet {
 public:
  struct Options {
    std::int64_t side = 224;
    std::vector<float> mean;
    std::vector<float> std;
    std::int64_t shorter_side = EvaluationShorterSide(side);  // without a draw
  };

  ImageFolder(ImageFiles files, Options options)
      : files_(std::move(files)), options_(std::move(options)) {}

  std::string Path(std::int64_t index) const { return files_.Path(index); }

  std::int64_t size() const override { return files_.size(); }
  std::int64_t Label(std::int64_t index) const override { return files_.Label(index); }
  SampleShape shape() const override { return {3, options_.side, options_.side}; }

  // With a draw RandomCrop(), else the middle of what torchvision's Resize(shorter_side) gives. A
  // JPEG that is to be made smaller is decoded smaller.
  void Write(std::int64_t index, const Draw* draw, bool channels_last, float* out) const override;
  void Check(std::int64_t index) const override;

  // Write() of the image that these bytes of a file are. Throws ImageError.
  static void WriteImage(std::span<const std::uint8_t> bytes, const Options& options,
                         const Draw* draw, bool channels_last, float* out);

 private:
  // The bytes of the file. Throws DamagedSample.
  std::string Read(std::int64_t index) const;
  // Throws DamagedSample.
  [[noreturn]] void Fail(std::int64_t index, const ImageError& error) const;

  const ImageFiles files_;
  const Options options_;
};

// The folder `options.directory`, images of input_size pixels a side. The test images are those
// of val/ or test/, or of val/images/ with their classes in val/val_annotations.txt (Tiny
// ImageNet), or with `options.val_share` that share of each class's images (sample_split.h), which
// lie in CLASS/ or train/CLASS/. Throws DataError. What is passed over, and classes without test
// images, are notes.
Dataset OpenImageFolder(const DatasetOptions& options);

}  // namespace ddprun
