// SPDX-License-Identifier: Apache-2.0
// Images of one size as bytes in memory: generated, or views of a mapped file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/train/data/augment.h"
#include "worker/train/data/dataset.h"

namespace ddprun {

struct LabelledImages {
  // uint8, N x stored channels x height x width. The bytes of one image are contiguous, the images
  // may be any stride apart: a view of a file's records.
  at::Tensor images;
  at::Tensor labels;  // int64, N, each in [0, classes)

  std::int64_t size() const { return labels.size(0); }
};

// Throws DataError that names `source` and the first label which is not in [0, classes).
void CheckLabels(const LabelledImages& set, std::int64_t classes, const std::string& source);

class FixedSizeImages : public SampleSet {
 public:
  struct Options {
    // What the model sees. A grey image is stored once and shown on every channel; one that is
    // smaller is shown in the middle, on black.
    SampleShape shape;
    std::vector<float> mean;
    std::vector<float> std;
    bool varied = true;  // false: a draw changes nothing
  };

  // `parts` follow each other, as the files of a data set do.
  FixedSizeImages(std::vector<LabelledImages> parts, Options options);

  std::int64_t size() const override { return part_begins_.back(); }
  std::int64_t Label(std::int64_t index) const override;
  SampleShape shape() const override { return options_.shape; }
  void Write(std::int64_t index, const Draw* draw, bool channels_last, float* out) const override;

  const std::vector<LabelledImages>& parts() const { return parts_; }
  const Options& options() const { return options_; }

  // As placed. With Padding::kReflect the shifts must be smaller than the image's sides.
  void WritePlaced(std::int64_t index, const Placement& placement, bool channels_last, float* out,
                   Padding padding = Padding::kZero) const;

 private:
  struct Place {
    std::size_t part;
    std::int64_t index;
  };
  Place Find(std::int64_t index) const;
  const std::uint8_t* Pixels(std::int64_t index) const;
  struct Cut {
    Placement placement;
    Padding padding = Padding::kZero;
  };
  void WritePlanes(const std::uint8_t* pixels, const Cut& cut, float* out) const;
  void WritePixels(const std::uint8_t* pixels, const Cut& cut, float* out) const;
  void CopyRow(const std::uint8_t* plane, std::int64_t y, const Cut& cut, std::uint8_t* out) const;
  void CopyRowInZeros(const std::uint8_t* plane, std::int64_t y, const Placement& placement,
                      std::uint8_t* out) const;
  void CopyRowReflected(const std::uint8_t* plane, std::int64_t y, const Placement& placement,
                        std::uint8_t* out) const;

  const std::vector<LabelledImages> parts_;
  const Options options_;
  const std::int64_t stored_channels_;
  const std::int64_t stored_height_;
  const std::int64_t stored_width_;
  std::vector<std::int64_t> part_begins_;  // and the end of the last one
  // Mean and deviation for a block of rows of pixels, with their channels side by side.
  std::vector<float> row_mean_;
  std::vector<float> row_std_;
};

}  // namespace ddprun
