// SPDX-License-Identifier: Apache-2.0
#include "worker/data/image_decoder.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>

// They need <cstdio> before them.
#include <jerror.h>
#include <jpeglib.h>

namespace ddprun {
namespace {

using Bytes = std::span<const std::uint8_t>;

bool StartsWith(Bytes file, std::initializer_list<std::uint8_t> magic) {
  return file.size() >= magic.size() && std::memcmp(file.data(), magic.begin(), magic.size()) == 0;
}

bool IsJpeg(Bytes file) { return StartsWith(file, {0xff, 0xd8, 0xff}); }
bool IsPng(Bytes file) { return StartsWith(file, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}); }

[[noreturn]] void NotAnImage() { throw ImageError("is neither a JPEG nor a PNG image"); }

void CheckSize(ImageSize size) {
  if (size.height > 0 && size.width > 0 && size.width <= kImagePixelsMax / size.height) return;
  throw ImageError("claims to be " + std::to_string(size.width) + "x" +
                   std::to_string(size.height) + " pixels, and more than " +
                   std::to_string(kImagePixelsMax) + " are not taken for an image");
}

// libjpeg reports an error by a call that must not return: jumps to the caller's setjmp.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg knows only this
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

void OnError(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  errors->manager.format_message(info, errors->text);
  std::longjmp(errors->back, 1);
}

// libjpeg only warns of these errors and goes on with grey pixels. Its other warnings concern files
// that are odd but whole.
void OnMessage(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  const bool damaged =
      code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE;
  if (level < 0 && damaged) OnError(info);
}

void OnProgress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kJpegScansMax) return;
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  std::snprintf(errors->text, sizeof errors->text, "more than %d scans", kJpegScansMax);
  std::longjmp(errors->back, 1);
}

struct JpegReader {
  jpeg_decompress_struct info{};
  JpegErrors errors{};
  jpeg_progress_mgr progress{};

  JpegReader() {
    info.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = OnError;
    errors.manager.emit_message = OnMessage;
    progress.progress_monitor = OnProgress;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Each returns false with errors.text set. Nothing that has a destructor lives in them, as a
  // longjmp would leave it out.
  bool ReadHeader(const std::uint8_t* data, std::size_t size) {
    if (setjmp(errors.back) != 0) return false;
    jpeg_create_decompress(&info);
    info.progress = &progress;
    jpeg_mem_src(&info, data, size);
    jpeg_read_header(&info, TRUE);
    return true;
  }

  bool Start(int denominator) {
    if (setjmp(errors.back) != 0) return false;
    info.scale_num = 1;
    info.scale_denom = static_cast<unsigned>(denominator);
    const bool four = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
    info.out_color_space = four ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&info);
    return true;
  }

  bool Rows(std::uint8_t* out, std::size_t row_bytes) {
    if (setjmp(errors.back) != 0) return false;
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = out + info.output_scanline * row_bytes;
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    return true;
  }

  [[noreturn]] void Fail() const {
    throw ImageError(std::string("is damaged (") + errors.text + ")");
  }

  ImageSize size() const { return {info.image_height, info.image_width}; }
};

// Nearly all CMYK JPEGs are from Adobe's programs, which store the inks inverted.
void CmykToRgb(const std::vector<std::uint8_t>& cmyk, bool inverted,
               std::vector<std::uint8_t>& rgb) {
  const int flip = inverted ? 0 : 255;
  for (std::size_t i = 0; i < rgb.size() / 3; ++i) {
    const int black = cmyk[4 * i + 3] ^ flip;
    for (std::size_t c = 0; c < 3; ++c) {
      rgb[3 * i + c] = static_cast<std::uint8_t>((cmyk[4 * i + c] ^ flip) * black / 255);
    }
  }
}

RgbImage DecodeJpeg(Bytes file, int denominator) {
  JpegReader reader;
  if (!reader.ReadHeader(file.data(), file.size())) reader.Fail();
  CheckSize(reader.size());
  if (!reader.Start(denominator)) reader.Fail();
  const std::size_t height = reader.info.output_height;
  const std::size_t width = reader.info.output_width;
  const auto components = static_cast<std::size_t>(reader.info.output_components);
  RgbImage image{{static_cast<std::int64_t>(height), static_cast<std::int64_t>(width)},
                 std::vector<std::uint8_t>(height * width * 3)};
  if (components == 3) {
    if (!reader.Rows(image.pixels.data(), width * 3)) reader.Fail();
    return image;
  }
  if (components != 4) throw ImageError("has " + std::to_string(components) + " colours");
  std::vector<std::uint8_t> cmyk(height * width * 4);
  if (!reader.Rows(cmyk.data(), width * 4)) reader.Fail();
  CmykToRgb(cmyk, reader.info.saw_Adobe_marker, image.pixels);
  return image;
}

// libpng's simplified interface: errors come back as a text.
struct PngReader {
  png_image info{};

  explicit PngReader(Bytes file) {
    info.version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_memory(&info, file.data(), file.size())) Fail();
    CheckSize(size());
  }
  ~PngReader() { png_image_free(&info); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  [[noreturn]] void Fail() {
    const std::string text = info.message;
    png_image_free(&info);
    throw ImageError("is damaged (" + text + ")");
  }

  ImageSize size() const { return {info.height, info.width}; }
};

RgbImage DecodePng(Bytes file) {
  PngReader reader(file);
  const auto pixels = static_cast<std::size_t>(reader.size().height * reader.size().width);
  // Without a format that has transparency libpng would blend it with a background.
  const bool transparent = (reader.info.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  reader.info.format = transparent ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  const std::size_t channels = transparent ? 4 : 3;
  RgbImage image{reader.size(), std::vector<std::uint8_t>(pixels * channels)};
  if (!png_image_finish_read(&reader.info, nullptr, image.pixels.data(), 0, nullptr)) {
    reader.Fail();
  }
  if (transparent) {
    for (std::size_t i = 0; i < pixels; ++i) {
      std::memmove(&image.pixels[3 * i], &image.pixels[4 * i], 3);
    }
    image.pixels.resize(pixels * 3);
  }
  return image;
}

}  // namespace

ImageSize ReadImageSize(Bytes file) {
  if (IsPng(file)) return PngReader(file).size();
  if (!IsJpeg(file)) NotAnImage();
  JpegReader reader;
  if (!reader.ReadHeader(file.data(), file.size())) reader.Fail();
  CheckSize(reader.size());
  return reader.size();
}

RgbImage DecodeImage(Bytes file, int denominator) {
  if (IsPng(file)) return DecodePng(file);
  if (!IsJpeg(file)) NotAnImage();
  return DecodeJpeg(file, denominator);
}

}  // namespace ddprun
