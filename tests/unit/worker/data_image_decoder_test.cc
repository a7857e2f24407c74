// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/image_decoder.h"

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
  EXPECT_THAT(Fault(""), HasSubstr("is empty"));
  EXPECT_THAT(Fault("some text"), HasSubstr("is no image: must be JPEG, PNG, PPM, PGM or BMP"));
  EXPECT_THAT(Fault("\xff\xd8\xff and then no more"), HasSubstr("damaged"));
  EXPECT_THAT(Fault("\x89PNG\r\n\x1a\n and then no more"), HasSubstr("damaged"));
}

// Whatever the name of the file says.
TEST(ImageDecoder, OtherKindsOfFilesAreNamed) {
  EXPECT_THAT(Fault("GIF89a and more"), HasSubstr("is a GIF image, but must be JPEG"));
  EXPECT_THAT(Fault(std::string("RIFF\x10\0\0\0WEBPVP8 ", 16)), HasSubstr("a WebP image"));
  EXPECT_THAT(Fault(std::string("II*\0more", 8)), HasSubstr("a TIFF image"));
  EXPECT_THAT(Fault(std::string("\0\0\0 ftypavif", 12)), HasSubstr("an AVIF image"));
  EXPECT_THAT(Fault("<!DOCTYPE html>"), HasSubstr("a page of HTML"));
  try {
    DecodeImage(Bytes("GIF89a"), 1);
  } catch (const ImageError& error) {
    EXPECT_THAT(error.next_move, HasSubstr("convert it to JPEG or PNG"));
  }
}

// A header alone may claim any size: nothing is allocated for it.
TEST(ImageDecoder, ADecompressionBombIsAFault) {
  std::string jpeg = Jpeg(Gradient(16, 16));
  const auto frame = jpeg.find("\xff\xc0");
  jpeg.replace(frame + 5, 4, "\xff\x00\xff\x00", 4);
  EXPECT_THAT(Fault(jpeg), HasSubstr("cut off: claims to be 65280x65280 pixels"));
  EXPECT_THAT(Fault("P6 30000 30000 255 few"), HasSubstr("is 30000x30000 pixels, which take 2574 "
                                                         "MiB of memory to decode, and at most"));
  EXPECT_THAT(Fault("P6 3000 3000 255 few"), HasSubstr("cut off"));
}

// One colour: blocks of two bits. 100 megapixels are a photograph of today.
TEST(ImageDecoder, ALargeJpegIsDecodedSmallerIfItMustBe) {
  constexpr ImageSize kLarge{20'000, 20'000};  // 1144 MiB
  const std::string file = OneColourJpeg(kLarge, 0x60);
  EXPECT_EQ(ReadImageSize(Bytes(file)).height, kLarge.height);
  const RgbImage image = DecodeImage(Bytes(file), 1);
  EXPECT_EQ(image.size.height, kLarge.height / 2);
  EXPECT_EQ(image.pixels[image.pixels.size() / 2], 0x60);
}

std::string Text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

TEST(ImageDecoder, PortableMapsAreDecoded) {
  using Pixels = std::vector<std::uint8_t>;
  const auto pixels = [](const std::string& file) { return DecodeImage(Bytes(file), 1).pixels; };
  const RgbImage image = Gradient(7, 5);
  EXPECT_EQ(pixels("P6\n# made by hand\n5 7\n255\n" + Text(image.pixels)), image.pixels);
  EXPECT_EQ(pixels("P5 2 1 255\n\n#"), (Pixels{10, 10, 10, 35, 35, 35}));
  EXPECT_EQ(pixels("P2 2 1 3 # grey\n1\n2"), (Pixels{85, 85, 85, 170, 170, 170}));
  EXPECT_EQ(pixels("P3 1 1 10  0 5 10"), (Pixels{0, 128, 255}));
  EXPECT_EQ(pixels(std::string("P6 1 1 65535 \x12\x34\xff\xff\0\x80", 19)), (Pixels{18, 255, 0}));
  EXPECT_EQ(ReadImageSize(Bytes("P2 2 1 3 1 2")).width, 2);
  EXPECT_THAT(Fault("P3 1 1 10 0 5 11"), HasSubstr("above the largest one"));
  EXPECT_THAT(Fault("P3 1 1 10 0 5 x"), HasSubstr("no number where its samples should be"));
  EXPECT_THAT(Fault("P5 2 2 255 abc"), HasSubstr("cut off"));
  EXPECT_THAT(Fault("P5 2 2 0 abcd"), HasSubstr("its largest sample is 0"));
  EXPECT_THAT(Fault("P5 0 2 255 abcd"), HasSubstr("claims to be 0x2 pixels"));
  EXPECT_THAT(Fault("P5 99999999999 2 255 abcd"), HasSubstr("too large for its width"));
}

// Blue, green, red, from the lowest row up, each row a multiple of four bytes.
std::string Bitmap(const RgbImage& image) {
  const auto number = [](std::int64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
    return text;
  };
  std::string rows;
  for (std::int64_t y = image.size.height - 1; y >= 0; --y) {
    for (std::int64_t x = 0; x < image.size.width; ++x) {
      const auto* pixel = &image.pixels[static_cast<std::size_t>((y * image.size.width + x) * 3)];
      for (const int c : {2, 1, 0}) rows += static_cast<char>(pixel[c]);
    }
    rows.resize((rows.size() + 3) / 4 * 4);
  }
  return "BM" + number(54 + std::ssize(rows), 4) + number(0, 4) + number(54, 4) + number(40, 4) +
         number(image.size.width, 4) + number(image.size.height, 4) + number(1, 2) + number(24, 2) +
         std::string(24, '\0') + rows;
}

TEST(ImageDecoder, BitmapsAreDecoded) {
  const RgbImage image = Gradient(7, 5);
  std::string file = Bitmap(image);
  EXPECT_EQ(ReadImageSize(Bytes(file)).height, 7);
  EXPECT_EQ(DecodeImage(Bytes(file), 8).pixels, image.pixels);
  EXPECT_THAT(Fault(file.substr(0, file.size() - 1)), HasSubstr("cut off"));
  file[30] = 1;
  EXPECT_THAT(Fault(file), HasSubstr("is a BMP image with run-length encoding, which is not read"));
  file[30] = 0;
  file[28] = 2;
  EXPECT_THAT(Fault(file), HasSubstr("of 2 bits a pixel"));
  file[14] = 99;
  file[15] = 1;
  EXPECT_THAT(Fault(file), HasSubstr("a header of 355 bytes"));
}

// Cut off: a fault, wherever (but in a PNG's end mark, after which nothing is missing). Flipped: a
// fault or another image, and never a crash.
TEST(ImageDecoder, DamageIsAFaultOrAnotherImage) {
  const RgbImage image = Gradient(40, 40);
  const std::string map = "P6\n40 40\n255\n" + Text(image.pixels);
  for (const std::string& file : {Png(image), Jpeg(image), map, Bitmap(image)}) {
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
