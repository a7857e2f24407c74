// SPDX-License-Identifier: Apache-2.0
// Labelled samples, and the data sets by name. Each data set is a .cc file in datasets/ that adds
// itself to Datasets().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddprun/errors.h"
#include "worker/library/base/registry.h"
#include "worker/train/config/choices.h"

namespace ddprun {

// One sentence: the file, what is wrong with it, and what to do.
struct DataError : OwnError {
  using OwnError::OwnError;
};

// One sample's file cannot be read or decoded; the others may be whole.
struct DamagedSample : DataError {
  DamagedSample(const std::string& what_is_wrong, const std::string& next_move)
      : DataError(what_is_wrong + "; " + next_move), fact(what_is_wrong) {}

  std::string fact;  // "PATH: REASON"
};

// MapFile() of files/mapped_file.h. Throws DataError "PATH: REASON; NEXT_MOVE".
at::Tensor MapDataFile(const std::string& path, const std::string& next_move);

// How training images are varied.
struct AugmentOptions {
  std::int64_t padding = 4;  // pixels on each side; with kReflect fewer than the image has
  Padding mode = Padding::kZero;
  Flip flip = Flip::kRandom;
};

// What a random variation of a sample is a function of. The position is that in the epoch's order
// over all ranks, so that a sample is varied the same way whichever rank gets it.
struct Draw {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::uint64_t index = 0;  // of the sample in its set
  AugmentOptions options = {};
};

// What a model sees of one sample.
struct SampleShape {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t numel() const { return channels * height * width; }
};

// A set for training or for testing. Constant after construction: any thread may use it.
class SampleSet {
 public:
  virtual ~SampleSet() = default;

  virtual std::int64_t size() const = 0;
  virtual std::int64_t Label(std::int64_t index) const = 0;  // in [0, classes)
  virtual SampleShape shape() const = 0;

  // Sample `index`, normalised, varied as `draw` says if it is not null, to `out`, which takes
  // shape().numel() floats: planes one after another, or with `channels_last` the channels of one
  // pixel side by side. Throws DamagedSample if its file is damaged.
  virtual void Write(std::int64_t index, const Draw* draw, bool channels_last,
                     float* out) const = 0;

  // Whether Write() would succeed, as fast as can be: throws DamagedSample if not. Where samples
  // are no files of their own, opening the set has checked them.
  virtual void Check(std::int64_t /*index*/) const {}
};

class DamagedSamples;  // damaged_samples.h

struct Dataset {
  std::shared_ptr<const SampleSet> train;
  std::shared_ptr<const SampleSet> test;
  std::int64_t classes = 0;
  std::vector<float> mean;  // of each channel, for values in [0, 1]
  std::vector<float> std;
  std::vector<std::string> class_names = {};     // by label; empty: not known
  std::vector<std::string> notes = {};           // lines for people: what of the data is not used
  std::shared_ptr<DamagedSamples> damaged = {};  // null: a damaged sample ends the program

  SampleShape shape() const { return train->shape(); }
};

// From the settings with the same names; `input_size` is a side in pixels, or the width of a row.
struct DatasetOptions {
  std::string directory;         // empty: the data set's own default
  std::uint64_t seed = 0;        // of what is made up
  std::int64_t samples = 4096;   // made up, for training; a quarter as many for testing
  std::int64_t input_size = 32;  // made up, or of what is cut out of files of any size
  std::optional<std::int64_t> classes = std::nullopt;  // made up; none: the data set's own default
  double val_share = 0;  // of images in folders without test images; 0: none is split
};

// Throws DataError.
using DatasetOpener = std::function<Dataset(const DatasetOptions&)>;
Registry<DatasetOpener>& Datasets();

// Throws std::invalid_argument that lists the names, or DataError.
Dataset OpenDataset(const std::string& name, const DatasetOptions& options);

}  // namespace ddprun
