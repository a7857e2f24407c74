// SPDX-License-Identifier: Apache-2.0
#include "proto/failure_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace ddprun {
namespace {

class FailureRecordTest : public ::testing::Test {
 protected:
  FailureRecordTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "ddprun-record-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
  }
  ~FailureRecordTest() override { std::filesystem::remove_all(dir_); }

  std::string Path(const std::string& name = "error.json") const { return (dir_ / name).string(); }
  void Put(const std::string& text) { std::ofstream(Path()) << text; }

  std::filesystem::path dir_;
};

TEST_F(FailureRecordTest, WhatIsWrittenIsReadAndNothingElseIsLeft) {
  const std::string message = "CUDA error: \"out of memory\"\nline two\t\\ \xC3\xA9";
  ASSERT_TRUE(WriteFailureRecord(Path(), message, 1234).ok());
  const auto read = ReadFailureRecord(Path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, message);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir_)) ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(FailureRecordTest, TheFormatIsTorchelastics) {
  ASSERT_TRUE(WriteFailureRecord(Path(), "text", 1234).ok());
  std::ifstream in(Path());
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, R"({"message":{"extraInfo":{"timestamp":"1234"},"message":"text"}})");
}

TEST_F(FailureRecordTest, PythonsRecordIsUnderstood) {
  Put(R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1"}}})");
  EXPECT_EQ(*ReadFailureRecord(Path()), "ValueError: no");
  Put(R"({"message": "plain"})");
  EXPECT_EQ(*ReadFailureRecord(Path()), "plain");
}

TEST_F(FailureRecordTest, WhatIsNotARecordIsSaidToBeNone) {
  EXPECT_EQ(ReadFailureRecord(Path("absent")).status().code(), absl::StatusCode::kNotFound);
  for (const char* text :
       {"", "{", "[]", "3", "{}", R"({"message": 3})", R"({"message": {"message": 3}})"}) {
    Put(text);
    EXPECT_EQ(ReadFailureRecord(Path()).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
  Put(std::string(2 << 20, 'x'));
  EXPECT_EQ(ReadFailureRecord(Path()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FailureRecordTest, ALongMessageIsCutBetweenCharacters) {
  std::string message(kFailureMessageBytesMax - 1, 'x');
  message += "\xC3\xA9tail";
  ASSERT_TRUE(WriteFailureRecord(Path(), message, 1).ok());
  EXPECT_EQ(*ReadFailureRecord(Path()), std::string(kFailureMessageBytesMax - 1, 'x'));
}

TEST_F(FailureRecordTest, BytesThatAreNoTextDoNotStopTheRecord) {
  ASSERT_TRUE(WriteFailureRecord(Path(), "bad \xff byte", 1).ok());
  EXPECT_EQ(*ReadFailureRecord(Path()), "bad \xEF\xBF\xBD byte");
}

TEST_F(FailureRecordTest, AFolderThatIsNotThereIsAnErrorWithItsName) {
  const absl::Status status = WriteFailureRecord(Path("no/such/file"), "text", 1);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no/such/file"));
}

}  // namespace
}  // namespace ddprun
