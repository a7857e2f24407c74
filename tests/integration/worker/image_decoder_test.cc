// SPDX-License-Identifier: Apache-2.0
// The pixels of pictures that image_peer.py writes, beside Pillow's and torchvision's.
#include "worker/train/data/image_decoder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "proto/input_file.h"
#include "tests/testing/paths.h"
#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

std::string Read(const std::filesystem::path& path) {
  return ReadRegularFile(path, std::size_t{1} << 20).value();
}

std::span<const std::uint8_t> Bytes(const std::string& file) {
  return {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
}

// Where they first differ, and how; empty if they are equal.
std::string Difference(const std::vector<std::uint8_t>& pixels, const std::string& expected) {
  if (pixels.size() != expected.size())
    return std::to_string(pixels.size()) + " bytes instead of " + std::to_string(expected.size());
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const int wanted = static_cast<std::uint8_t>(expected[i]);
    if (pixels[i] != wanted)
      return "byte " + std::to_string(i) + " is " + std::to_string(pixels[i]) + " instead of " +
             std::to_string(wanted);
  }
  return "";
}

TEST(ImageDecoderPeerTest, PicturesHaveThePixelsThatPythonSees) {
  const TempFiles files;
  const std::string peer = SourcePath("tests/integration/worker/image_peer.py");
  ASSERT_EQ(std::system(("'" + TestPython() + "' '" + peer + "' '" + files.folder() + "'").c_str()),
            0);
  int good = 0;
  int damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(files.folder())) {
    std::filesystem::path path = entry.path();
    if (path.extension() == ".rgb") continue;
    const std::string file = Read(path);
    SCOPED_TRACE(path.filename());
    if (path.extension() == ".damaged") {
      EXPECT_THROW(DecodeImage(Bytes(file), 1), ImageError);
      ++damaged;
      continue;
    }
    try {
      const RgbImage image = DecodeImage(Bytes(file), 1);
      EXPECT_EQ(Difference(image.pixels, Read(path.replace_extension(".rgb"))), "");
    } catch (const ImageError& error) {
      ADD_FAILURE() << error.what();
    }
    ++good;
  }
  EXPECT_GT(good, 200);
  EXPECT_GT(damaged, 10);
}

}  // namespace
}  // namespace ddprun
