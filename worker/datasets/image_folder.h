// SPDX-License-Identifier: Apache-2.0
// A folder of JPEG and PNG files laid out as ImageNet: train/CLASS/*.jpg and val/CLASS/*.jpg, or
// test/ instead of val/. Classes are the names of the folders, sorted. Files are decoded on demand
// in the loader's threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/data/image_decoder.h"

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

class ImageFolder : public SampleSet {
 public:
  struct Options {
    std::int64_t side = 224;
    std::vector<float> mean;
    std::vector<float> std;
  };

  // `folder` is train/ or val/. Throws DataError: no such folder, no class, a class without images.
  ImageFolder(std::string folder, Options options);

  const std::vector<std::string>& classes() const { return classes_; }
  const std::string& folder() const { return folder_; }
  std::string Path(std::int64_t index) const;

  std::int64_t size() const override { return static_cast<std::int64_t>(images_.size()); }
  std::int64_t Label(std::int64_t index) const override;
  SampleShape shape() const override { return {3, options_.side, options_.side}; }

  // With a draw RandomCrop(), else the middle of what torchvision's
  // Resize(EvaluationShorterSide(side)) gives. A JPEG that is to be made smaller is decoded smaller.
  void Write(std::int64_t index, const Draw* draw, bool channels_last, float* out) const override;

 private:
  // Names lie one after another in one string: an ImageNet's are 26 MB so.
  struct Image {
    std::uint64_t name_begin;
    std::uint32_t name_size;
    std::uint32_t label;
  };

  const std::string folder_;
  const Options options_;
  std::vector<std::string> classes_;
  std::string names_;
  std::vector<Image> images_;
};

// The folder `options.directory`, images of input_size pixels a side. Throws DataError, also if
// train/ and val/ differ in their classes.
Dataset OpenImageFolder(const DatasetOptions& options);

}  // namespace ddprun
