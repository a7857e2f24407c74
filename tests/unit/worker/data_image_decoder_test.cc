// SPDX-License-Identifier: Apache-2.0
#include "worker/data/image_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/unit/worker/data_pictures.h"
#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::span<const std::uint8_t> Bytes(const std::string& file) {
  return {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
}

std::string Fault(const std::string& file) {
  return MessageOf<ImageError>([&] {
    ReadImageSize(Bytes(file));
    DecodeImage(Bytes(file), 1);
  });
}

int LargestDifference(const RgbImage& a, const RgbImage& b) {
  int largest = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) {
    largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
  }
  return largest;
}

TEST(ImageDecoder, APngIsDecodedExactly) {
  const RgbImage image = Gradient(37, 61);
  const std::string file = Png(image);
  EXPECT_EQ(ReadImageSize(Bytes(file)).height, 37);
  EXPECT_EQ(ReadImageSize(Bytes(file)).width, 61);
  EXPECT_EQ(DecodeImage(Bytes(file), 4).pixels, image.pixels);
}

TEST(ImageDecoder, AJpegIsDecodedNearly) {
  const RgbImage image = Gradient(37, 61);
  const std::string file = Jpeg(image);
  EXPECT_EQ(ReadImageSize(Bytes(file)).height, 37);
  const RgbImage decoded = DecodeImage(Bytes(file), 1);
  ASSERT_EQ(decoded.size.width, 61);
  EXPECT_LE(LargestDifference(decoded, image), 12);
}

TEST(ImageDecoder, AJpegIsDecodedSmallerIfAsked) {
  const std::string file = Jpeg(Gradient(160, 240));
  for (const int denominator : {2, 4, 8}) {
    const RgbImage decoded = DecodeImage(Bytes(file), denominator);
    ASSERT_EQ(decoded.size.height, 160 / denominator);
    ASSERT_EQ(decoded.size.width, 240 / denominator);
    EXPECT_LE(LargestDifference(decoded, Gradient(160 / denominator, 240 / denominator)), 12);
  }
}

// Each scan costs a pass over the whole image, and a few bytes of the file.
TEST(ImageDecoder, AJpegOfTooManyScansIsRefused) {
  EXPECT_EQ(DecodeImage(Bytes(ProgressiveJpeg({16, 24}, kJpegScansMax)), 1).size.width, 24);
  std::string file = ProgressiveJpeg({16, 24}, kJpegScansMax);
  // Its last scan, from the start of its header to the end of the image, once more.
  const std::size_t last = file.rfind("\xff\xda");
  ASSERT_NE(last, std::string::npos);
  const std::string scan = file.substr(last, file.size() - 2 - last);
  file.insert(last, scan);
  EXPECT_THAT(Fault(file), HasSubstr("is damaged (more than 64 scans)"));
}

TEST(ImageDecoder, GreyAndTransparentOnesBecomeColours) {
  const std::string grey(6 * 5, '\x55');
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(grey.data());
  const std::vector<std::uint8_t> expected(6 * 5 * 3, 0x55);
  EXPECT_EQ(DecodeImage(Bytes(Png(pixels, {6, 5}, PNG_FORMAT_GRAY)), 1).pixels, expected);
  EXPECT_EQ(DecodeImage(Bytes(Jpeg(pixels, {6, 5}, 1, JCS_GRAYSCALE)), 1).pixels, expected);
  std::string clear;
  for (int i = 0; i < 6 * 5; ++i) clear += std::string("\x10\x20\x30\x80", 4);
  const auto image = DecodeImage(Bytes(Png(clear.data(), {6, 5}, PNG_FORMAT_RGBA)), 1);
  ASSERT_EQ(image.pixels.size(), 6u * 5 * 3);
  EXPECT_EQ(image.pixels[3], 0x10);
  EXPECT_EQ(image.pixels[5], 0x30);
}

// As Adobe's programs store them, inverted: 255 is no ink.
TEST(ImageDecoder, InksBecomeColours) {
  std::string inks;
  for (int i = 0; i < 16 * 16; ++i) inks += std::string("\xff\x80\x40\xff", 4);
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(inks.data());
  const auto image = DecodeImage(Bytes(Jpeg(pixels, {16, 16}, 4, JCS_CMYK)), 1);
  EXPECT_NEAR(image.pixels[0], 0xff, 4);
  EXPECT_NEAR(image.pixels[1], 0x80, 4);
  EXPECT_NEAR(image.pixels[2], 0x40, 4);
}

TEST(ImageDecoder, WhatIsNoImageIsAFault) {
  EXPECT_THAT(Fault(""), HasSubstr("neither a JPEG nor a PNG"));
  EXPECT_THAT(Fault("GIF89a and more"), HasSubstr("neither"));
  EXPECT_THAT(Fault("\xff\xd8\xff and then no more"), HasSubstr("damaged"));
  EXPECT_THAT(Fault("\x89PNG\r\n\x1a\n and then no more"), HasSubstr("damaged"));
}

// A header alone may claim any size: nothing is allocated for it.
TEST(ImageDecoder, ADecompressionBombIsAFault) {
  std::string jpeg = Jpeg(Gradient(16, 16));
  const auto frame = jpeg.find("\xff\xc0");
  jpeg.replace(frame + 5, 4, "\xff\x00\xff\x00", 4);
  EXPECT_THAT(Fault(jpeg), AllOf(HasSubstr("65280x65280"), HasSubstr("89478485")));
}

// Cut off: a fault, wherever (but in a PNG's end mark, after which nothing is missing). Flipped: a
// fault or another image, and never a crash.
TEST(ImageDecoder, DamageIsAFaultOrAnotherImage) {
  const RgbImage image = Gradient(40, 40);
  for (const std::string& file : {Png(image), Jpeg(image)}) {
    for (std::size_t length = 0; length + 20 < file.size(); length += 3) {
      EXPECT_THROW(DecodeImage(Bytes(file.substr(0, length)), 1), ImageError) << length;
    }
    int good = 0;
    for (std::size_t at = 0; at < file.size(); ++at) {
      std::string flipped = file;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      try {
        const ImageSize size = ReadImageSize(Bytes(flipped));
        if (size.height * size.width > 1'000'000) continue;  // only slow
        const RgbImage decoded = DecodeImage(Bytes(flipped), 1);
        EXPECT_EQ(decoded.pixels.size(),
                  static_cast<std::size_t>(decoded.size.height * decoded.size.width * 3));
        ++good;
      } catch (const ImageError& error) {
        EXPECT_STRNE(error.what(), "");
      }
    }
    EXPECT_GT(good, 0);
  }
}

}  // namespace
}  // namespace ddprun
