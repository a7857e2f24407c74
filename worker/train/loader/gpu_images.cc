// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loader/gpu_images.h"

#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "worker/train/kernels/kernels.h"

namespace ddprun {

namespace {

constexpr unsigned kThreads = 256;           // of a block of make_batch
constexpr std::int64_t kBytesOfThread = 16;  // that each of them writes

// For each row of the padded image, the row of the image that it shows: mirrored at the outermost
// ones.
at::Tensor ReflectedIndices(std::int64_t size, std::int64_t padding, at::Device device) {
  const at::Tensor places =
      at::arange(-padding, size + padding, at::TensorOptions(device).dtype(at::kLong));
  return (size - 1) - ((size - 1) - places.abs()).abs();
}

}  // namespace

std::int64_t GpuImages::BytesOf(const FixedSizeImages& set, const AugmentOptions& variation) {
  const SampleShape shape = set.shape();
  const std::int64_t pixels = (shape.height + 2 * variation.padding) *
                              (shape.width + 2 * variation.padding) * shape.channels;
  return set.size() * (pixels + static_cast<std::int64_t>(sizeof(std::int64_t)));
}

GpuImages::GpuImages(const FixedSizeImages& set, const AugmentOptions& variation, at::Device device)
    : options_(set.options()), variation_(variation) {
  const torch::NoGradGuard no_grad;
  const auto [channels, height, width] = options_.shape;
  const std::int64_t padding = variation_.padding;
  const auto on_device = at::TensorOptions(device);
  padded_ = at::zeros({set.size(), height + 2 * padding, width + 2 * padding, channels},
                      on_device.dtype(at::kByte));
  std::vector<at::Tensor> labels;
  std::int64_t begin = 0;
  for (const LabelledImages& part : set.parts()) {
    const std::int64_t rows = part.images.size(2);
    const std::int64_t columns = part.images.size(3);
    const at::Tensor places = padded_.narrow(0, begin, part.size());
    // Smaller ones stand in the middle, grey ones on every channel.
    const at::Tensor shown = places.narrow(1, padding, height).narrow(2, padding, width);
    shown.narrow(1, (height - rows) / 2, rows)
        .narrow(2, (width - columns) / 2, columns)
        .copy_(part.images.to(device).permute({0, 2, 3, 1}));
    if (variation_.mode == Padding::kReflect) {
      places.copy_(shown.index_select(1, ReflectedIndices(height, padding, device))
                       .index_select(2, ReflectedIndices(width, padding, device)));
    }
    labels.push_back(part.labels);
    begin += part.size();
  }
  labels_ = at::cat(labels).to(device);
  mean_ = at::tensor(options_.mean).to(device);
  std_ = at::tensor(options_.std).to(device);
  // A tensor, because ATen replaces a division by a host number with a product with its inverse.
  white_ = at::full({1}, 255.0f, on_device.dtype(at::kFloat));
  down_ = at::arange(height, on_device.dtype(at::kInt));
  right_ = at::arange(width, on_device.dtype(at::kInt));
}

at::Tensor GpuImages::Rows(const std::vector<Sample>& samples,
                           const std::optional<Draw>& draw) const {
  const auto count = static_cast<std::int64_t>(samples.size());
  at::Tensor rows = at::empty({count, kColumns}, at::kInt);
  auto* row = rows.data_ptr<std::int32_t>();
  for (const Sample& sample : samples) {
    Placement placement;
    if (draw && options_.varied) {
      placement = RandomPlacement({.seed = draw->seed,
                                   .epoch = draw->epoch,
                                   .position = static_cast<std::uint64_t>(sample.position),
                                   .index = static_cast<std::uint64_t>(sample.index),
                                   .options = variation_});
    }
    const std::int64_t left = variation_.padding + placement.shift_x;
    row[0] = static_cast<std::int32_t>(sample.index);
    row[1] = static_cast<std::int32_t>(variation_.padding + placement.shift_y);
    row[2] = static_cast<std::int32_t>(placement.mirrored ? left + options_.shape.width - 1 : left);
    row[3] = placement.mirrored ? -1 : 1;
    row += kColumns;
  }
  return rows;
}

GpuImages::Batch GpuImages::Make(const Request& request) const {
  const torch::NoGradGuard no_grad;
  const std::int64_t channels = std::max(request.channels, options_.shape.channels);
  const std::int64_t values =
      request.count * options_.shape.height * options_.shape.width * channels;
  KernelLauncher* launcher = KernelsFor(padded_.device());
  const bool by_kernel = launcher != nullptr && IsKernelType(request.type) &&
                         values <= std::numeric_limits<std::int32_t>::max() / 2;
  return by_kernel ? MakeByKernel(*launcher, request) : MakeByTensors(request);
}

GpuImages::Batch GpuImages::MakeByKernel(KernelLauncher& launcher, const Request& request) const {
  const SampleShape& shape = options_.shape;
  const std::int64_t stride = std::max(request.channels, shape.channels);
  TORCH_INTERNAL_ASSERT(request.rows.is_contiguous() && request.rows.scalar_type() == at::kInt);
  const at::Tensor images =
      at::empty({request.count, stride, shape.height, shape.width},
                padded_.options().dtype(request.type), at::MemoryFormat::ChannelsLast);
  const at::Tensor labels = at::empty({request.count}, labels_.options());
  const std::int64_t threads =
      std::max(request.count,
               (images.numel() * images.element_size() + kBytesOfThread - 1) / kBytesOfThread);
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  LaunchKernel(
      launcher, KernelName("make_batch", request.type),
      {.blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads), .threads = kThreads},
      padded_.const_data_ptr(), labels_.const_data_ptr(), request.rows.const_data_ptr(),
      request.cursor.defined() ? request.cursor.const_data_ptr() : nullptr,
      static_cast<long long>(request.first), mean_.const_data_ptr(), std_.const_data_ptr(),
      narrow(request.count), narrow(shape.height), narrow(shape.width), narrow(shape.channels),
      narrow(stride), narrow(padded_.size(1)), narrow(padded_.size(2)), images.mutable_data_ptr(),
      labels.mutable_data_ptr());
  return {images, labels};
}

GpuImages::Batch GpuImages::MakeByTensors(const Request& request) const {
  at::Tensor places = at::arange(request.first, request.first + request.count,
                                 at::TensorOptions(padded_.device()).dtype(at::kLong));
  if (request.cursor.defined()) places = places + request.cursor;
  const at::Tensor rows = request.rows.index_select(0, places);
  const at::Tensor index = rows.select(1, 0);
  const at::Tensor y = rows.narrow(1, 1, 1) + down_;                                     // N x H
  const at::Tensor x = at::addcmul(rows.narrow(1, 2, 1), rows.narrow(1, 3, 1), right_);  // N x W
  at::Tensor images =
      at::indexing::get_item(padded_, {index.view({-1, 1, 1}), y.unsqueeze(2), x.unsqueeze(1)})
          .to(at::kFloat);
  images.div_(white_).sub_(mean_).div_(std_);
  const std::int64_t added = std::max(request.channels, options_.shape.channels) - images.size(3);
  if (added > 0) images = at::constant_pad_nd(images, {0, added});
  return {images.to(request.type).permute({0, 3, 1, 2}), labels_.index_select(0, index)};
}

}  // namespace ddprun
