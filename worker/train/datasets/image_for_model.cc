// SPDX-License-Identifier: Apache-2.0
#include "worker/train/datasets/image_for_model.h"

#include <ATen/Functions.h>

#include <cstdint>
#include <span>

#include "proto/input_file.h"
#include "worker/train/data/fixed_size_images.h"
#include "worker/train/data/image_decoder.h"
#include "worker/train/datasets/image_folder.h"

namespace ddprun {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr char kNextMove[] = "pass a whole JPEG, PNG, PPM, PGM or BMP file";

std::string SizeText(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

at::Tensor EmptyFor(const SampleShape& shape, bool channels_last) {
  return at::empty({1, shape.channels, shape.height, shape.width}, at::kFloat)
      .contiguous(channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

at::Tensor Resized(Bytes file, const ImageFolder::Options& options, const SampleShape& shape,
                   bool channels_last) {
  at::Tensor pixels = EmptyFor(shape, channels_last);
  ImageFolder::WriteImage(file, options, /*draw=*/nullptr, channels_last, pixels.data_ptr<float>());
  return pixels;
}

// As a data set of this one image. One that is smaller is placed on black.
at::Tensor AsStored(const at::Tensor& planes, const ModelView& view, bool channels_last) {
  const FixedSizeImages set({{.images = planes, .labels = at::zeros({1}, at::kLong)}},
                            {.shape = view.shape, .mean = view.mean, .std = view.std});
  at::Tensor pixels = EmptyFor(view.shape, channels_last);
  set.Write(0, /*draw=*/nullptr, channels_last, pixels.data_ptr<float>());
  return pixels;
}

// Bytes, 1 x 3 x height x width; or one plane by the luma of ITU-R 601, in Pillow's whole numbers:
// a grey pixel keeps its value.
at::Tensor PlanesOf(const RgbImage& image, bool grey) {
  const auto [height, width] = image.size;
  at::Tensor planes = at::empty({1, grey ? 1 : 3, height, width}, at::kByte);
  auto* out = planes.data_ptr<std::uint8_t>();
  const std::int64_t count = height * width;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint8_t* const rgb = image.pixels.data() + 3 * i;
    if (grey) {
      out[i] = static_cast<std::uint8_t>(
          (19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u) >> 16);
      continue;
    }
    for (std::int64_t c = 0; c < 3; ++c) out[c * count + i] = rgb[c];
  }
  return planes;
}

ImageForModel Read(const std::string& path, Bytes file, const ModelView& view, bool channels_last) {
  const SampleShape& shape = view.shape;
  ImageFolder::Options options{.side = shape.height, .mean = view.mean, .std = view.std};
  if (view.dataset == "imagefolder")
    return {.pixels = Resized(file, options, shape, channels_last)};
  const ImageSize size = ReadImageSize(file);
  const bool is_grey = view.dataset == "idx" || view.dataset == "fashion-mnist";
  const bool fits = size.height <= shape.height && size.width <= shape.width;
  if (fits && (is_grey || (size.height == shape.height && size.width == shape.width)))
    return {.pixels = AsStored(PlanesOf(DecodeImage(file, 1), is_grey), view, channels_last)};
  if (is_grey || shape.height != shape.width)
    throw DamagedSample(path + ": is " + SizeText(size.width, size.height) +
                            " pixels, but the images that the model was trained on have " +
                            (is_grey ? "at most " : "") + SizeText(shape.width, shape.height),
                        "resize it to theirs");
  options.shorter_side = options.side;
  return {.pixels = Resized(file, options, shape, channels_last), .resized_from = size};
}

}  // namespace

ImageForModel ReadImageForModel(const std::string& path, const ModelView& view,
                                bool channels_last) {
  const absl::StatusOr<std::string> file = ReadRegularFile(path, kImageFileBytesMax);
  if (!file.ok())
    throw DamagedSample(path + ": " + std::string(file.status().message()), kNextMove);
  try {
    return Read(path, {reinterpret_cast<const std::uint8_t*>(file->data()), file->size()}, view,
                channels_last);
  } catch (const ImageError& error) {
    throw DamagedSample(path + ": " + error.what(), kNextMove);
  }
}

}  // namespace ddprun
