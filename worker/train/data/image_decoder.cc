// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/image_decoder.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

// They need <cstdio> before them.
#include <jerror.h>
#include <jpeglib.h>

#include "worker/train/data/bitmap.h"
#include "worker/train/data/portable_map.h"

namespace ddprun {
namespace {

using Bytes = std::span<const std::uint8_t>;

bool StartsWith(Bytes file, std::initializer_list<std::uint8_t> magic) {
  return file.size() >= magic.size() && std::memcmp(file.data(), magic.begin(), magic.size()) == 0;
}

bool IsJpeg(Bytes file) { return StartsWith(file, {0xff, 0xd8, 0xff}); }
bool IsPng(Bytes file) { return StartsWith(file, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}); }

// Huffman codes have a bit at least, and a block of 64 pixels has one in its first scan at least.
constexpr std::int64_t kJpegPixelsPerByteMax = 512;
// 258 bytes of two bits each are the most that deflate can make of a byte.
constexpr std::int64_t kDeflateRatioMax = 1032;

// Kinds of files that are found under an image's name and are not read.
struct OtherKind {
  const char* name;
  std::size_t at;
  std::string_view magic;
};
constexpr std::array<OtherKind, 13> kOtherKinds = {{
    {"a WebP image", 8, "WEBP"},
    {"a GIF image", 0, "GIF8"},
    {"a TIFF image", 0, {"II*\0", 4}},
    {"a TIFF image", 0, {"MM\0*", 4}},
    {"an AVIF image", 4, "ftypavif"},
    {"an HEIF image", 4, "ftyp"},
    {"a JPEG 2000 image", 4, "jP  "},
    {"a JPEG XL image", 4, "JXL "},
    {"a PBM image", 0, "P1"},
    {"a PBM image", 0, "P4"},
    {"an SVG image", 0, "<svg"},
    {"a page of HTML or XML", 0, "<"},
    {"a PDF document", 0, "%PDF"},
}};

[[noreturn]] void NotAnImage(Bytes file) {
  constexpr char kRead[] = "JPEG, PNG, PPM, PGM or BMP";
  if (file.empty()) throw ImageError("is empty");
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const OtherKind& kind : kOtherKinds) {
    if (text.size() < kind.at || !text.substr(kind.at).starts_with(kind.magic)) continue;
    throw ImageError(std::string("is ") + kind.name + ", but must be " + kRead,
                     "convert it to JPEG or PNG, remove the file, or pass --skip-damaged");
  }
  throw ImageError(std::string("is no image: must be ") + kRead);
}

// The file has too few bytes for its size.
[[noreturn]] void CutOff(ImageSize size) {
  throw ImageError("is damaged (cut off: claims to be " + std::to_string(size.width) + "x" +
                   std::to_string(size.height) + " pixels)");
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
  bool ReadHeader(Bytes file) {
    if (setjmp(errors.back) != 0) return false;
    jpeg_create_decompress(&info);
    info.progress = &progress;
    jpeg_mem_src(&info, file.data(), file.size());
    jpeg_read_header(&info, TRUE);
    return true;
  }

  bool Start(int denominator) {
    if (setjmp(errors.back) != 0) return false;
    info.scale_num = 1;
    info.scale_denom = static_cast<unsigned>(denominator);
    info.out_color_space = has_inks() ? JCS_CMYK : JCS_RGB;
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
  bool has_inks() const {
    return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  }
};

// Inks are inverted in the file, as Adobe's programs store them; 255 is none. Pillow and
// torchvision take every file for such a one too, and round like this.
void CmykToRgb(const std::vector<std::uint8_t>& cmyk, std::vector<std::uint8_t>& rgb) {
  for (std::size_t i = 0; i < rgb.size() / 3; ++i) {
    const int black = cmyk[4 * i + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      const int absorbed = black * (255 - cmyk[4 * i + c]) + 128;
      rgb[3 * i + c] = static_cast<std::uint8_t>(black - (((absorbed >> 8) + absorbed) >> 8));
    }
  }
}

// Bytes for one pixel of the file: its colours, the inks if these are read first, and the
// coefficients of all pixels if the file has several scans.
double JpegBytesPerPixel(JpegReader& reader, int denominator) {
  const double out = reader.has_inks() ? 7 : 3;
  const double kept = jpeg_has_multiple_scans(&reader.info) ? 2.0 * reader.info.num_components : 0;
  return out / (denominator * denominator) + kept;
}

// Nothing is allocated for an image before its size was checked.
ImageSize OpenJpeg(JpegReader& reader, Bytes file) {
  if (!reader.ReadHeader(file)) reader.Fail();
  const ImageSize size = reader.size();
  CheckImageSize(size, JpegBytesPerPixel(reader, kJpegDenominatorMax));
  const auto bytes = static_cast<std::int64_t>(file.size());
  if (!reader.info.arith_code && size.height * size.width / kJpegPixelsPerByteMax > bytes)
    CutOff(size);
  return size;
}

RgbImage DecodeJpeg(Bytes file, int denominator) {
  JpegReader reader;
  const ImageSize whole = OpenJpeg(reader, file);
  const auto pixels = static_cast<double>(whole.height * whole.width);
  while (denominator < kJpegDenominatorMax &&
         pixels * JpegBytesPerPixel(reader, denominator) > static_cast<double>(kImageBytesMax))
    denominator *= 2;
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
  CmykToRgb(cmyk, image.pixels);
  return image;
}

// The low-level interface of libpng: the simplified one applies a gamma to 16-bit samples and to
// those of a file with a gAMA chunk. It reports an error by a call that must not return, as
// libjpeg.
struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  Bytes left;
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];

  PngReader() = default;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  static void OnError(png_structp png, png_const_charp text) {
    auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(reader->text, sizeof reader->text, "%s", text);
    std::longjmp(reader->back, 1);
  }

  // Warnings concern files that are odd but whole.
  static void OnWarning(png_structp, png_const_charp) {}

  static void Read(png_structp png, png_bytep out, std::size_t size) {
    auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > reader->left.size()) png_error(png, "cut off");
    std::memcpy(out, reader->left.data(), size);
    reader->left = reader->left.subspan(size);
  }

  // Each returns false with `text` set. Nothing that has a destructor lives in them, as a longjmp
  // would leave it out.
  bool ReadHeader(Bytes file) {
    left = file;
    std::snprintf(text, sizeof text, "no memory for its header");
    if (setjmp(back) != 0) return false;
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning);
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) return false;
    png_set_read_fn(png, this, Read);
    png_set_benign_errors(png, 1);
    // Chunks on which no pixel depends (text, colour profiles) are not even unpacked.
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png, info);
    return true;
  }

  // Keeps the upper eight bits of 16-bit samples.
  bool Rows(std::uint8_t* out, std::size_t row_bytes) {
    if (setjmp(back) != 0) return false;
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_strip_16(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "its rows are of another length");
    const png_uint_32 height = png_get_image_height(png, info);
    for (int pass = 0; pass < passes; ++pass) {
      for (png_uint_32 y = 0; y < height; ++y) png_read_row(png, out + y * row_bytes, nullptr);
    }
    return true;
  }

  [[noreturn]] void Fail() const { throw ImageError(std::string("is damaged (") + text + ")"); }

  ImageSize size() const {
    return {png_get_image_height(png, info), png_get_image_width(png, info)};
  }
};

ImageSize OpenPng(PngReader& reader, Bytes file) {
  if (!reader.ReadHeader(file)) reader.Fail();
  const ImageSize size = reader.size();
  CheckImageSize(size, 3);
  const auto row_bytes = static_cast<std::int64_t>(png_get_rowbytes(reader.png, reader.info));
  if (size.height * row_bytes / kDeflateRatioMax > static_cast<std::int64_t>(file.size()))
    CutOff(size);
  return size;
}

RgbImage DecodePng(Bytes file) {
  PngReader reader;
  const ImageSize size = OpenPng(reader, file);
  const std::size_t row_bytes = static_cast<std::size_t>(size.width) * 3;
  RgbImage image{size,
                 std::vector<std::uint8_t>(static_cast<std::size_t>(size.height) * row_bytes)};
  if (!reader.Rows(image.pixels.data(), row_bytes)) reader.Fail();
  return image;
}

}  // namespace

bool HasImageEnding(const std::filesystem::path& path) {
  std::string ending = path.extension();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::string_view kOnes[] = {".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".pnm", ".bmp"};
  return std::find(std::begin(kOnes), std::end(kOnes), ending) != std::end(kOnes);
}

ImageSize ReadImageSize(Bytes file) {
  if (IsPng(file)) {
    PngReader reader;
    return OpenPng(reader, file);
  }
  if (IsPortableMap(file)) return ReadPortableMapSize(file);
  if (IsBitmap(file)) return ReadBitmapSize(file);
  if (!IsJpeg(file)) NotAnImage(file);
  JpegReader reader;
  return OpenJpeg(reader, file);
}

RgbImage DecodeImage(Bytes file, int denominator) {
  if (IsPng(file)) return DecodePng(file);
  if (IsPortableMap(file)) return DecodePortableMap(file);
  if (IsBitmap(file)) return DecodeBitmap(file);
  if (!IsJpeg(file)) NotAnImage(file);
  return DecodeJpeg(file, denominator);
}

}  // namespace ddprun
