// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <sstream>

#include "tests/unit/worker/temp_files.h"
#include "worker/library/files/bounded_json.h"
#include "worker/library/files/safetensors.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// A file of such a header and so many bytes of data.
std::string FileOf(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + header + std::string(data_bytes, '\1');
}

std::string ReasonAgainst(const std::string& bytes) {
  const TempFiles files;
  const std::string path = files.Write("a.safetensors", bytes);
  const std::string message = MessageOf<SafetensorsError>([&] { SafetensorsFile file(path); });
  EXPECT_THAT(message, HasSubstr(path));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

TEST(SafetensorsTest, GivesBackEveryTypeAndShape) {
  const TempFiles files;
  NamedTensors tensors;
  for (const auto type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
                          at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    tensors.emplace_back(c10::toString(type), at::arange(6).reshape({2, 3}).to(type));
  }
  tensors.emplace_back("scalar", at::scalar_tensor(7.5));
  tensors.emplace_back("empty", at::empty({3, 0}));
  tensors.emplace_back("turned", at::arange(6.0).reshape({2, 3}).t());
  const std::string path = files.Path("a.safetensors");
  WriteSafetensors(path, tensors, {{"format", "pt"}, {"a \"text\"", "\n\xc3\xa4"}});
  const SafetensorsFile file(path);
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("a \"text\"", "\n\xc3\xa4"), Pair("format", "pt")));
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const auto& [name, tensor] : file.tensors()) {
    const auto given = std::find_if(tensors.begin(), tensors.end(),
                                    [&, &n = name](const auto& item) { return item.first == n; });
    ASSERT_NE(given, tensors.end()) << name;
    EXPECT_EQ(tensor.scalar_type(), given->second.scalar_type()) << name;
    EXPECT_TRUE(tensor.is_contiguous()) << name;
    EXPECT_TRUE(at::equal(tensor, given->second)) << name;
  }
}

TEST(SafetensorsTest, TensorsOutliveTheFileAndAreTheReadersOwn) {
  const TempFiles files;
  const std::string path = files.Path("a.safetensors");
  WriteSafetensors(path, {{"w", at::ones({1000})}});
  at::Tensor mine = SafetensorsFile(path).tensors().front().second;
  WriteSafetensors(path, {{"w", at::zeros({1000})}});
  EXPECT_TRUE(at::equal(mine, at::ones({1000})));
  mine.fill_(5);
  EXPECT_TRUE(at::equal(SafetensorsFile(path).tensors().front().second, at::zeros({1000})));
}

TEST(SafetensorsTest, AFileWithoutTensorsIsOne) {
  const TempFiles files;
  const std::string path = files.Path("a.safetensors");
  WriteSafetensors(path, {});
  EXPECT_THAT(SafetensorsFile(path).tensors(), IsEmpty());
}

TEST(SafetensorsTest, TensorsAtOddPlacesAreReadToo) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  std::string bytes = FileOf(header, 9);
  const float values[] = {1.5f, -2};
  std::memcpy(bytes.data() + bytes.size() - sizeof values, values, sizeof values);
  const TempFiles files;
  const SafetensorsFile file(files.Write("a.safetensors", bytes));
  EXPECT_TRUE(at::equal(file.tensors().at(1).second, at::tensor({1.5f, -2.0f})));
}

TEST(SafetensorsTest, WhatCannotBeWrittenIsNamed) {
  const TempFiles files;
  const std::string path = files.Path("a.safetensors");
  const auto write = [&](const NamedTensors& tensors) {
    return MessageOf<std::invalid_argument>([&] { WriteSafetensors(path, tensors); });
  };
  EXPECT_THAT(write({{"w", at::ones(1)}, {"w", at::ones(1)}}), HasSubstr("'w'"));
  EXPECT_THAT(write({{"__metadata__", at::ones(1)}}), HasSubstr("'__metadata__'"));
  EXPECT_THAT(write({{"z", at::ones(1, at::kComplexFloat)}}), HasSubstr("'z' is of type Complex"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(MessageOf<std::runtime_error>([&] { WriteSafetensors(path + "/no/b", {}); }),
              HasSubstr("No such file or directory"));
}

TEST(SafetensorsTest, WhatIsNotThereIsNamed) {
  EXPECT_THAT(MessageOf<std::runtime_error>([] { SafetensorsFile file("/nowhere/a.safetensors"); }),
              HasSubstr("cannot open /nowhere/a.safetensors: No such file"));
  const TempFiles files;
  EXPECT_THAT(MessageOf<std::runtime_error>([&] { SafetensorsFile file(files.folder()); }),
              HasSubstr("is not a regular file"));
}

TEST(SafetensorsTest, DamageIsNamed) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_THAT(ReasonAgainst(""), HasSubstr("only 0 bytes"));
  EXPECT_THAT(ReasonAgainst(std::string(7, '\0')), HasSubstr("only 7 bytes"));
  EXPECT_THAT(ReasonAgainst(std::string(8, '\xff')), HasSubstr("18446744073709551615 bytes"));
  EXPECT_THAT(ReasonAgainst(FileOf("{}", 0).substr(0, 9)), HasSubstr("would be of 2 bytes"));
  EXPECT_THAT(ReasonAgainst(FileOf("{", 0)), HasSubstr("not JSON"));
  EXPECT_THAT(ReasonAgainst(FileOf("[]", 0)), HasSubstr("not a JSON object"));
  EXPECT_THAT(ReasonAgainst(FileOf("{" + a + "," + a + "}", 8)), HasSubstr("has 'a' twice"));
  EXPECT_THAT(ReasonAgainst(FileOf("{" + a + "}", 7)), HasSubstr("cut off: 1 bytes"));
  EXPECT_THAT(ReasonAgainst(FileOf("{" + a + "}", 9)), HasSubstr("1 bytes at its end"));
  EXPECT_THAT(ReasonAgainst(FileOf(R"({"__metadata__":{"a":1}})", 0)), HasSubstr("'a' of its"));
  EXPECT_THAT(ReasonAgainst(FileOf(R"({"__metadata__":[]})", 0)), HasSubstr("metadata"));
}

// Two bytes of JSON take a hundred of memory.
TEST(SafetensorsTest, AHeaderThatWouldTakeGigabytesIsRefused) {
  std::string values = R"({"__metadata__":[0)";
  for (std::size_t i = 0; i < JsonLimits{}.values; ++i) values += ",0";
  EXPECT_THAT(ReasonAgainst(FileOf(values + "]}", 0)), HasSubstr("more than 2000000 values"));
  EXPECT_THAT(ReasonAgainst(FileOf("{\"a\":" + std::string(1'000'000, '['), 0)),
              HasSubstr("is nested deeper than 3 levels"));
}

TEST(SafetensorsTest, TensorsThatDoNotFitAreNamed) {
  const auto reason = [](const std::string& entry, std::size_t data_bytes = 8) {
    return ReasonAgainst(FileOf("{\"a\":" + entry + "}", data_bytes));
  };
  EXPECT_THAT(reason("5"), HasSubstr("'a' has not dtype"));
  EXPECT_THAT(reason(R"({"dtype":"F32","shape":[2]})"), HasSubstr("'a' has not dtype"));
  EXPECT_THAT(reason(R"({"dtype":"F8_E5M2","shape":[8],"data_offsets":[0,8]})"),
              HasSubstr("F8_E5M2"));
  EXPECT_THAT(reason(R"({"dtype":1,"shape":[8],"data_offsets":[0,8]})"), HasSubstr("no dtype"));
  for (const char* sizes : {"[-1]", "[2.0]", "2", "[\"2\"]"}) {
    EXPECT_THAT(
        reason(std::string(R"({"dtype":"F32","data_offsets":[0,8],"shape":)") + sizes + "}"),
        HasSubstr("no proper shape"));
  }
  for (const char* sizes : {"[3]", "[]", "[4611686018427387904,4]", "[9223372036854775808]",
                            "[0,9223372036854775807]", "[18446744073709551615,2]"}) {
    EXPECT_THAT(
        reason(std::string(R"({"dtype":"F32","data_offsets":[0,8],"shape":)") + sizes + "}"),
        HasSubstr("do not fit"));
  }
  for (const char* offsets : {"[8,0]", "[0,4,8]", "[0]", "[]"}) {
    EXPECT_THAT(
        reason(std::string(R"({"dtype":"F32","shape":[2],"data_offsets":)") + offsets + "}"),
        HasSubstr("do not fit"));
  }
  EXPECT_THAT(reason(R"({"dtype":"F32","shape":[2],"data_offsets":[1,9]})", 9),
              HasSubstr("do not follow"));
  std::string ones = "[1";
  for (std::size_t i = 0; i < kSafetensorsDimensionsMax; ++i) ones += ",1";
  EXPECT_THAT(reason(R"({"dtype":"F32","data_offsets":[0,4],"shape":)" + ones + "]}", 4),
              HasSubstr("no proper shape"));
}

TEST(SafetensorsTest, BytesInTwoTensorsAreRefused) {
  const std::string two = R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                          R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})";
  EXPECT_THAT(ReasonAgainst(FileOf(two, 8)), HasSubstr("'b' do not follow"));
}

}  // namespace
}  // namespace ddprun
