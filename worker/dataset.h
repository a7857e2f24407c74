// SPDX-License-Identifier: Apache-2.0
// Labelled images in memory, and the data sets there are, by name. A new one is a file of its own
// and a line in dataset.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddprun {

// One sentence: the file, what is wrong with it, and what to do.
struct DataError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct LabelledImages {
  at::Tensor images;  // uint8, N x stored channels x height x width
  at::Tensor labels;  // int64, N, each in [0, classes)

  std::int64_t size() const { return labels.size(0); }
};

struct Dataset {
  LabelledImages train;
  LabelledImages test;
  std::int64_t classes = 0;
  // What the model sees. Grey images are stored once and shown on every channel.
  std::int64_t channels = 3;
  std::vector<float> mean;  // of each channel, for values in [0, 1]
  std::vector<float> std;
};

struct DatasetOptions {
  std::string directory;   // empty: the data set's own default
  std::uint64_t seed = 0;  // of synthetic images
};

// Throws std::invalid_argument that lists the names there are, or DataError.
Dataset OpenDataset(const std::string& name, const DatasetOptions& options);

std::vector<std::string> DatasetNames();

// Throws DataError that names `source` and the first label which is not in [0, classes).
void CheckLabels(const LabelledImages& set, std::int64_t classes, const std::string& source);

}  // namespace ddprun
