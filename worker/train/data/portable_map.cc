// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/portable_map.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

namespace ddprun {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::int64_t kNumberMax = 999'999'999;  // of a header; a product of two fits 64 bits
constexpr std::int64_t kSampleMax = 65535;

bool IsSpace(std::uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsDigit(std::uint8_t c) { return c >= '0' && c <= '9'; }

[[noreturn]] void Damaged(const std::string& fact) {
  throw ImageError("is damaged (" + fact + ")");
}

// Samples by their order in the file: height x width x channels.
class Reader {
 public:
  explicit Reader(Bytes file) : left_(file.subspan(2)), is_text_(file[1] < '4') {
    channels = file[1] == '3' || file[1] == '6' ? 3 : 1;
    size.width = Number("width");
    size.height = Number("height");
    maximum = Number("largest sample");
    if (maximum < 1 || maximum > kSampleMax)
      Damaged("its largest sample is " + std::to_string(maximum));
    // One separator, which may be followed by a sample that looks like one.
    if (left_.empty() || !IsSpace(left_[0])) Damaged("cut off");
    left_ = left_.subspan(1);
    CheckImageSize(size, 3);
    const std::int64_t least =
        size.height * size.width * channels * (maximum > 255 || is_text_ ? 2 : 1);
    // The last sample of a text needs no separator after it.
    if (static_cast<std::int64_t>(left_.size()) + (is_text_ ? 1 : 0) < least) Damaged("cut off");
  }

  std::int64_t Sample() {
    if (!is_text_) return Binary();
    const std::int64_t value = Number("samples");
    if (value > maximum) Damaged("a sample is above the largest one");
    return value;
  }

  ImageSize size;
  std::int64_t channels;
  std::int64_t maximum;

 private:
  std::int64_t Binary() {
    std::int64_t value = left_[0];
    left_ = left_.subspan(1);
    if (maximum > 255) {
      value = value << 8 | left_[0];
      left_ = left_.subspan(1);
    }
    return std::min(value, maximum);
  }

  // Skips white space, and comments from # to the end of the line.
  std::int64_t Number(const char* what) {
    std::size_t at = 0;
    while (at < left_.size() && (IsSpace(left_[at]) || left_[at] == '#')) {
      if (left_[at] == '#') {
        while (at < left_.size() && left_[at] != '\n' && left_[at] != '\r') ++at;
      } else {
        ++at;
      }
    }
    if (at == left_.size()) Damaged("cut off");
    if (!IsDigit(left_[at])) Damaged(std::string("no number where its ") + what + " should be");
    std::int64_t value = 0;
    for (; at < left_.size() && IsDigit(left_[at]); ++at) {
      value = value * 10 + (left_[at] - '0');
      if (value > kNumberMax) Damaged(std::string("a number too large for its ") + what);
    }
    left_ = left_.subspan(at);
    return value;
  }

  Bytes left_;
  const bool is_text_;
};

}  // namespace

bool IsPortableMap(Bytes file) {
  return file.size() > 2 && file[0] == 'P' &&
         (file[1] == '2' || file[1] == '3' || file[1] == '5' || file[1] == '6') &&
         (IsSpace(file[2]) || file[2] == '#');
}

ImageSize ReadPortableMapSize(Bytes file) { return Reader(file).size; }

RgbImage DecodePortableMap(Bytes file) {
  Reader reader(file);
  const auto count = static_cast<std::size_t>(reader.size.height * reader.size.width);
  RgbImage image{reader.size, std::vector<std::uint8_t>(count * 3)};
  std::vector<std::uint8_t> level(static_cast<std::size_t>(reader.maximum) + 1);
  for (std::size_t i = 0; i < level.size(); ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(reader.maximum);
    level[i] = static_cast<std::uint8_t>(std::nearbyint(share * 255));
  }
  std::uint8_t* out = image.pixels.data();
  for (std::size_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < 3; ++c) {
      out[c] = c < reader.channels ? level[static_cast<std::size_t>(reader.Sample())] : out[0];
    }
    out += 3;
  }
  return image;
}

}  // namespace ddprun
