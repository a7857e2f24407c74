// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/bitmap.h"

#include <array>
#include <bit>
#include <cstddef>
#include <string>

namespace ddprun {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::size_t kFileHeaderBytes = 14;
constexpr std::uint32_t kOldHeaderBytes = 12;  // OS/2 1.x
constexpr std::uint32_t kHeaderBytes = 40;     // BITMAPINFOHEADER, with which all later ones begin
constexpr std::uint32_t kHeaderBytesMax = 124;
constexpr std::uint32_t kMasksEnd = 52;  // of a header that has the masks in it
constexpr std::size_t kMasksAt = kFileHeaderBytes + kHeaderBytes;
enum Compression : std::uint32_t { kNone = 0, kRuns8 = 1, kRuns4 = 2, kMasks = 3, kAlphaMasks = 6 };

[[noreturn]] void CutOff() { throw ImageError("is damaged (cut off)"); }
[[noreturn]] void NotRead(const std::string& kind) {
  throw ImageError("is a BMP image " + kind + ", which is not read",
                   "convert it to PNG, remove the file, or pass --skip-damaged");
}

std::uint32_t Number(Bytes file, std::size_t at, int bytes) {
  if (at + static_cast<std::size_t>(bytes) > file.size()) CutOff();
  std::uint32_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | file[at + static_cast<std::size_t>(i)];
  return value;
}

// Bits of a pixel that are one colour.
struct Channel {
  int shift = 0;
  std::uint32_t most = 0;

  explicit Channel(std::uint32_t mask)
      : shift(mask == 0 ? 0 : std::countr_zero(mask)), most(mask >> shift) {
    const bool one_run = (most & (most + 1)) == 0;
    if (mask == 0 || !one_run || most > 255) NotRead("with masks of its own");
  }
  std::uint8_t Of(std::uint32_t pixel) const {
    return static_cast<std::uint8_t>((pixel >> shift & most) * 255 / most);
  }
};

struct Header {
  explicit Header(Bytes file);

  ImageSize size;
  bool bottom_up = true;
  int bits = 0;  // of a pixel
  std::size_t pixels_at = 0;
  std::size_t row_bytes = 0;  // a multiple of four
  std::size_t palette_at = 0;
  std::size_t palette_step = 4;  // bytes of a colour: blue, green, red, and mostly one more
  std::size_t colours = 0;       // of the palette
  std::array<std::uint32_t, 3> masks{};

 private:
  void ReadMasks(Bytes file, std::uint32_t header, std::uint32_t compression);
};

void Header::ReadMasks(Bytes file, std::uint32_t header, std::uint32_t compression) {
  if (compression == kMasks || compression == kAlphaMasks) {
    for (std::size_t i = 0; i < 3; ++i) masks[i] = Number(file, kMasksAt + 4 * i, 4);
    // Without a place in the header they stand after it.
    if (header < kMasksEnd) palette_at += compression == kMasks ? 12 : 16;
  } else {
    masks = bits == 16 ? std::array<std::uint32_t, 3>{0x7c00, 0x3e0, 0x1f}
                       : std::array<std::uint32_t, 3>{0xff0000, 0xff00, 0xff};
  }
}

Header::Header(Bytes file) {
  pixels_at = Number(file, 10, 4);
  const std::uint32_t header = Number(file, kFileHeaderBytes, 4);
  palette_at = kFileHeaderBytes + header;
  std::uint32_t compression = kNone;
  if (header == kOldHeaderBytes) {
    size = {Number(file, 20, 2), Number(file, 18, 2)};
    bits = static_cast<int>(Number(file, 24, 2));
    palette_step = 3;
  } else if (header >= kHeaderBytes && header <= kHeaderBytesMax) {
    size.width = static_cast<std::int32_t>(Number(file, 18, 4));
    size.height = static_cast<std::int32_t>(Number(file, 22, 4));
    bottom_up = size.height > 0;
    if (!bottom_up) size.height = -size.height;
    bits = static_cast<int>(Number(file, 28, 2));
    compression = Number(file, 30, 4);
    colours = Number(file, 46, 4);
  } else {
    throw ImageError("is damaged (a header of " + std::to_string(header) + " bytes)");
  }
  CheckImageSize(size, 3);
  if (compression == kRuns8 || compression == kRuns4) NotRead("with run-length encoding");
  if (compression != kNone && compression != kMasks && compression != kAlphaMasks)
    NotRead("with compression " + std::to_string(compression));
  const bool has_palette = bits == 1 || bits == 4 || bits == 8;
  if (!has_palette && bits != 16 && bits != 24 && bits != 32)
    NotRead("of " + std::to_string(bits) + " bits a pixel");
  if (has_palette && (colours == 0 || colours > (1u << bits))) colours = std::size_t{1} << bits;
  ReadMasks(file, header, compression);
  row_bytes = static_cast<std::size_t>((size.width * bits + 31) / 32 * 4);
  const std::size_t rows = row_bytes * static_cast<std::size_t>(size.height);
  if (pixels_at > file.size() || rows > file.size() - pixels_at) CutOff();
  if (has_palette && palette_at + colours * palette_step > file.size()) CutOff();
}

}  // namespace

bool IsBitmap(Bytes file) { return file.size() > 2 && file[0] == 'B' && file[1] == 'M'; }

ImageSize ReadBitmapSize(Bytes file) { return Header(file).size; }

RgbImage DecodeBitmap(Bytes file) {
  const Header header(file);
  const auto height = static_cast<std::size_t>(header.size.height);
  const auto width = static_cast<std::size_t>(header.size.width);
  const auto bits = static_cast<std::size_t>(header.bits);
  RgbImage image{header.size, std::vector<std::uint8_t>(height * width * 3)};
  // Without masks these are not used.
  const std::array<Channel, 3> channels = {Channel(header.masks[0]), Channel(header.masks[1]),
                                           Channel(header.masks[2])};
  std::uint8_t* out = image.pixels.data();
  for (std::size_t y = 0; y < height; ++y) {
    const std::size_t row = header.bottom_up ? height - 1 - y : y;
    const Bytes line = file.subspan(header.pixels_at + row * header.row_bytes, header.row_bytes);
    for (std::size_t x = 0; x < width; ++x, out += 3) {
      if (bits > 8) {
        const std::uint32_t pixel = Number(line, x * bits / 8, header.bits / 8);
        for (std::size_t c = 0; c < 3; ++c) out[c] = channels[c].Of(pixel);
      } else {
        const std::size_t last_bit = x * bits % 8 + bits;
        const std::size_t colour = line[x * bits / 8] >> (8 - last_bit) & ((1u << bits) - 1);
        if (colour >= header.colours) continue;  // black
        const std::size_t at = header.palette_at + colour * header.palette_step;
        for (std::size_t c = 0; c < 3; ++c) out[c] = file[at + 2 - c];
      }
    }
  }
  return image;
}

}  // namespace ddprun
