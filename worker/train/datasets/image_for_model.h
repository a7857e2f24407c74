// SPDX-License-Identifier: Apache-2.0
// The image of one file as a trained model sees it: as an evaluation on its data set would show it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "worker/train/data/dataset.h"
#include "worker/train/data/rgb_image.h"

namespace ddprun {

// What of a training determines it.
struct ModelView {
  std::string dataset;
  SampleShape shape;
  std::vector<float> mean;
  std::vector<float> std;
};

struct ImageForModel {
  at::Tensor pixels;  // 1 x channels x height x width, normalised
  // The file's size, if it had to be changed for a data set that changes none.
  std::optional<ImageSize> resized_from = std::nullopt;
};

// An image folder's model sees the middle of the resized image, as its test images. Of the other
// data sets all images have one size: an image of that size is shown as it is. Another one is
// resized, so that its middle fills the model's square; but grey digits and clothes (idx,
// fashion-mnist), which are shown as grey images, are placed in the middle of black, as their data
// set does. Throws DamagedSample: the file is no image, or one of them is too large.
ImageForModel ReadImageForModel(const std::string& path, const ModelView& view, bool channels_last);

}  // namespace ddprun
