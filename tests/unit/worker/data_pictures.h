// SPDX-License-Identifier: Apache-2.0
// Encoded images for tests.
#pragma once

#include <png.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// It needs <cstdio> before it.
#include <jpeglib.h>

#include "worker/train/data/image_decoder.h"

namespace ddprun {

// Smooth colours that differ everywhere, so that a JPEG of it is nearly the same.
inline RgbImage Gradient(std::int64_t height, std::int64_t width, int blue = 100) {
  RgbImage image{{height, width}, {}};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      image.pixels.push_back(static_cast<std::uint8_t>(x * 255 / width));
      image.pixels.push_back(static_cast<std::uint8_t>(y * 255 / height));
      image.pixels.push_back(static_cast<std::uint8_t>(blue));
    }
  }
  return image;
}

// `format` is one of libpng's PNG_FORMAT_*, and `pixels` are in it.
inline std::string Png(const void* pixels, ImageSize size, std::uint32_t format) {
  png_image info{};
  info.version = PNG_IMAGE_VERSION;
  info.width = static_cast<png_uint_32>(size.width);
  info.height = static_cast<png_uint_32>(size.height);
  info.format = format;
  png_alloc_size_t bytes = 0;
  png_image_write_to_memory(&info, nullptr, &bytes, 0, pixels, 0, nullptr);
  std::string file(bytes, '\0');
  png_image_write_to_memory(&info, file.data(), &bytes, 0, pixels, 0, nullptr);
  file.resize(bytes);
  return file;
}

inline std::string Png(const RgbImage& image) {
  return Png(image.pixels.data(), image.size, PNG_FORMAT_RGB);
}

// `row_of(y)` gives the first of a row's samples, `components` of `space` a pixel. `scans` is the
// script of a progressive file; empty: baseline.
template <typename RowOf>
std::string EncodeJpeg(ImageSize size, int components, J_COLOR_SPACE space,
                       const std::vector<jpeg_scan_info>& scans, RowOf row_of) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &out, &bytes);
  info.image_width = static_cast<JDIMENSION>(size.width);
  info.image_height = static_cast<JDIMENSION>(size.height);
  info.input_components = components;
  info.in_color_space = space;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (!scans.empty()) {
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(row_of(info.next_scanline));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<char*>(out), bytes);
  std::free(out);
  return file;
}

inline std::string Jpeg(const std::uint8_t* pixels, ImageSize size, int components,
                        J_COLOR_SPACE space, const std::vector<jpeg_scan_info>& scans = {}) {
  return EncodeJpeg(size, components, space, scans,
                    [&](JDIMENSION y) { return pixels + y * size.width * components; });
}

// Makes an image of any size with little memory: one row is written again and again.
inline std::string OneColourJpeg(ImageSize size, std::uint8_t grey) {
  const std::vector<std::uint8_t> row(static_cast<std::size_t>(size.width), grey);
  return EncodeJpeg(size, 1, JCS_GRAYSCALE, {}, [&row](JDIMENSION) { return row.data(); });
}

// A grey progressive image of `scans` scans, from 1 to 64: one for each coefficient, and one for
// the rest.
inline std::string ProgressiveJpeg(ImageSize size, int scans) {
  const auto scan = [](int first, int last) {
    return jpeg_scan_info{
        .comps_in_scan = 1, .component_index = {0}, .Ss = first, .Se = last, .Ah = 0, .Al = 0};
  };
  std::vector<jpeg_scan_info> script{scan(0, 0)};
  for (int i = 1; i < scans; ++i) script.push_back(scan(i, i == scans - 1 ? 63 : i));
  const std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.height * size.width), 0x55);
  return Jpeg(pixels.data(), size, 1, JCS_GRAYSCALE, script);
}

inline std::string Jpeg(const RgbImage& image) {
  return Jpeg(image.pixels.data(), image.size, 3, JCS_RGB);
}

}  // namespace ddprun
