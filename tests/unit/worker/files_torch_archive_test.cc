// SPDX-License-Identifier: Apache-2.0
// Model files as someone who means harm would write them.
#include "worker/library/files/torch_archive.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "tests/unit/worker/temp_files.h"
#include "worker/library/files/state_dict.h"

namespace ddprun {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

// Eight little-endian bytes: LONG1.
std::string Int(std::int64_t number) {
  std::string text = "\x8a\x08";
  text.resize(2 + sizeof number);
  std::memcpy(text.data() + 2, &number, sizeof number);
  return text;
}
std::string Text(const std::string& text) {
  return "X" + Int(static_cast<std::int64_t>(text.size())).substr(2, 4) + text;
}
std::string Tuple(const std::vector<std::int64_t>& numbers) {
  std::string text = "(";
  for (const std::int64_t number : numbers) text += Int(number);
  return text + "t";
}

// A tensor as torch.save writes it, by default of [2, 3] floats.
struct Forged {
  std::string type = "FloatStorage";
  std::string key = "0";
  std::int64_t elements = 6;
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes = {2, 3};
  std::vector<std::int64_t> strides = {3, 1};
  std::string rebuild = "_rebuild_tensor_v2";

  std::string Pickled() const {
    return "ctorch._utils\n" + rebuild + "\n((" + Text("storage") + "ctorch\n" + type + "\n" +
           Text(key) + Text("cpu") + Int(elements) + "tQ" + Int(offset) + Tuple(sizes) +
           Tuple(strides) +
           "\x89"
           "ccollections\nOrderedDict\n)RtR";
  }
};

class TorchArchive : public testing::Test {
 protected:
  using Records = std::map<std::string, std::string>;

  std::string WriteArchive(const std::string& pickle, Records records) {
    const std::string path = files_.Path("model.pth");
    caffe2::serialize::PyTorchStreamWriter writer(path);
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    for (const auto& [name, bytes] : records) writer.writeRecord(name, bytes.data(), bytes.size());
    writer.writeEndOfFile();
    return path;
  }

  std::string Write(const Forged& tensor) {
    const float values[] = {0, 1, 2, 3, 4, 5};
    const std::string bytes(reinterpret_cast<const char*>(values), sizeof values);
    return WriteArchive("\x80\x02}(" + Text("w") + tensor.Pickled() + "u.", {{"data/0", bytes}});
  }

  std::string ErrorOf(const Forged& tensor) {
    const std::string path = Write(tensor);
    return MessageOf<std::runtime_error>([&] { ReadStateDict(path); });
  }

  const TempFiles files_;
};

constexpr char kBeyond[] = "a tensor in it reaches beyond its storage";

TEST_F(TorchArchive, AWholeTensorIsRead) {
  const NamedTensors tensors = ReadStateDict(Write({}));
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].first, "w");
  EXPECT_TRUE(at::equal(tensors[0].second, at::arange(6, at::kFloat).view({2, 3})));
}

TEST_F(TorchArchive, AViewIsRead) {
  const auto tensors = ReadStateDict(Write({.offset = 1, .sizes = {2, 2}, .strides = {1, 3}}));
  EXPECT_TRUE(at::equal(tensors[0].second, at::tensor({1.f, 4.f, 2.f, 5.f}).view({2, 2})));
}

TEST_F(TorchArchive, AnEmptyTensorIsRead) {
  EXPECT_EQ(ReadStateDict(Write({.sizes = {0, 3}}))[0].second.sizes(), at::IntArrayRef({0, 3}));
}

TEST_F(TorchArchive, ATensorBeyondItsRecordIsRejected) {
  EXPECT_THAT(ErrorOf({.sizes = {3, 3}}), HasSubstr(kBeyond));
  EXPECT_THAT(ErrorOf({.offset = 1}), HasSubstr(kBeyond));
  EXPECT_THAT(ErrorOf({.offset = std::int64_t{1} << 40}), HasSubstr(kBeyond));
  EXPECT_THAT(ErrorOf({.strides = {4, 1}}), HasSubstr(kBeyond));
  EXPECT_THAT(ErrorOf({.strides = {std::int64_t{1} << 40, 1}}), HasSubstr(kBeyond));
}

TEST_F(TorchArchive, NumbersThatOverflowAreRejected) {
  const std::int64_t half = std::int64_t{1} << 62;
  EXPECT_THAT(ErrorOf({.sizes = {half, 4}, .strides = {0, 0}}), HasSubstr(kBeyond));
  EXPECT_THAT(ErrorOf({.sizes = {3, 3}, .strides = {half, half}}), HasSubstr(kBeyond));
  EXPECT_THAT(ErrorOf({.offset = INT64_MAX}), HasSubstr(kBeyond));
  EXPECT_THAT(ErrorOf({.sizes = {0, half, 4}, .strides = {1, 1, 1}}), HasSubstr(kBeyond));
  EXPECT_THAT(ErrorOf({.elements = half}),
              HasSubstr("storage 0 is not of the size that it claims"));
}

// Copied, a view of one element would take gigabytes.
TEST_F(TorchArchive, AViewLargerThanItsStorageIsRejected) {
  EXPECT_THAT(ErrorOf({.sizes = {std::int64_t{1} << 32}, .strides = {0}}), HasSubstr(kBeyond));
}

TEST_F(TorchArchive, NegativeNumbersAreRejected) {
  const auto negative = HasSubstr("a size or an offset in it is negative");
  EXPECT_THAT(ErrorOf({.offset = -1}), negative);
  EXPECT_THAT(ErrorOf({.sizes = {-2, 3}}), negative);
  EXPECT_THAT(ErrorOf({.strides = {-3, 1}}), negative);
  EXPECT_THAT(ErrorOf({.elements = -6}), negative);
}

TEST_F(TorchArchive, ARecordOfAnotherSizeIsRejected) {
  EXPECT_THAT(ErrorOf({.elements = 7}), HasSubstr("storage 0 is not of the size that it claims"));
  EXPECT_THAT(ErrorOf({.type = "DoubleStorage"}), HasSubstr("is not of the size"));
}

TEST_F(TorchArchive, WhatIsNoTensorIsRejected) {
  EXPECT_THAT(ErrorOf({.rebuild = "_rebuild_sparse_tensor"}),
              HasSubstr("it holds something else than names and tensors"));
  EXPECT_THAT(ErrorOf({.sizes = {6}}), HasSubstr("something else than names and tensors"));
  EXPECT_THAT(ErrorOf({.type = "QInt8Storage"}), HasSubstr("torch.QInt8Storage"));
  EXPECT_THAT(ErrorOf({.key = "1"}), HasSubstr("is not a state dict that torch.save wrote"));
  EXPECT_THAT(ErrorOf({.sizes = std::vector<std::int64_t>(65, 1)}), HasSubstr("65 dimensions"));
}

TEST_F(TorchArchive, ACallIsNotMade) {
  const std::string proof = files_.Path("proof");
  const std::string path = WriteArchive(
      "\x80\x02}" + Text("w") + "cos\nsystem\n" + Text("touch " + proof) + "\x85Rs.", {});
  EXPECT_THAT(MessageOf<std::runtime_error>([&] { ReadStateDict(path); }),
              HasSubstr("something else than names and tensors"));
  EXPECT_FALSE(std::filesystem::exists(proof));
}

TEST_F(TorchArchive, RecordsThatClaimMoreThanTheFileAreRejected) {
  const std::string path = Write({});
  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  // The first entry of the central directory: both sizes, at 20 and 24.
  const std::size_t entry = bytes.find("PK\x01\x02");
  ASSERT_NE(entry, std::string::npos);
  std::string large = bytes;
  large.replace(entry + 20, 8, "\0\0\0\x70\0\0\0\x70"s);
  files_.Write("model.pth", large);
  EXPECT_THAT(MessageOf<std::runtime_error>([&] { ReadStateDict(path); }),
              HasSubstr("its records claim more bytes than the file has"));
  std::string deflated = bytes;
  deflated[entry + 10] = 8;
  files_.Write("model.pth", deflated);
  EXPECT_THAT(MessageOf<std::runtime_error>([&] { ReadStateDict(path); }),
              HasSubstr("its records are compressed"));
}

// Each byte of the file in turn becomes another one: an error or other numbers, and nothing worse.
TEST_F(TorchArchive, AnyByteMayBeWrong) {
  const std::string path = Write({});
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0xff);
    files_.Write("model.pth", damaged);
    try {
      for (const auto& [name, tensor] : ReadStateDict(path)) tensor.clone();
    } catch (const std::runtime_error&) {
    }
  }
}

}  // namespace
}  // namespace ddprun
