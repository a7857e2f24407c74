// SPDX-License-Identifier: Apache-2.0
#include "proto/failure_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

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
  ASSERT_TRUE(WriteFailureRecord(Path(), {.message = message, .traceback = ""}, 1234).ok());
  const auto read = ReadFailureRecord(Path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->message, message);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir_)) ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(FailureRecordTest, TheFormatIsTorchelastics) {
  ASSERT_TRUE(WriteFailureRecord(Path(), {.message = "text", .traceback = ""}, 1234).ok());
  std::ifstream in(Path());
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, R"({"message":{"extraInfo":{"timestamp":"1234"},"message":"text"}})");
}

TEST_F(FailureRecordTest, PythonsRecordIsUnderstood) {
  Put(R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1"}}})");
  EXPECT_EQ(ReadFailureRecord(Path())->message, "ValueError: no");
  EXPECT_EQ(ReadFailureRecord(Path())->traceback, "Traceback");
  Put(R"({"message": "plain"})");
  EXPECT_EQ(ReadFailureRecord(Path())->message, "plain");
  // The agent's own copy (error_handler.py, override_error_code_in_rootcause_data), and an older
  // one.
  Put(R"({"message": {"message": "m", "errorCode": 7, "extraInfo": "text"}, "timestamp": 1})");
  EXPECT_EQ(ReadFailureRecord(Path())->message, "m");
  EXPECT_EQ(ReadFailureRecord(Path())->traceback, "");
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

TEST_F(FailureRecordTest, TracebackAndErrorCodeAreWhereTorchelasticHasThem) {
  ASSERT_TRUE(WriteFailureRecord(Path(), {"no", "Traceback", -11}, 1).ok());
  EXPECT_EQ(ReadFailureRecord(Path())->traceback, "Traceback");
  std::ifstream file(Path());
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), ::testing::HasSubstr(R"("errorCode":-11)"));
}

TEST_F(FailureRecordTest, ALongMessageIsCutBetweenCharacters) {
  std::string message(kFailureMessageBytesMax - 1, 'x');
  message += "\xC3\xA9tail";
  ASSERT_TRUE(WriteFailureRecord(Path(), {.message = message, .traceback = ""}, 1).ok());
  EXPECT_EQ(ReadFailureRecord(Path())->message, std::string(kFailureMessageBytesMax - 1, 'x'));
}

TEST_F(FailureRecordTest, BytesThatAreNoTextDoNotStopTheRecord) {
  ASSERT_TRUE(WriteFailureRecord(Path(), {.message = "bad \xff byte", .traceback = ""}, 1).ok());
  EXPECT_EQ(ReadFailureRecord(Path())->message, "bad \xEF\xBF\xBD byte");
}

TEST_F(FailureRecordTest, AFolderThatIsNotThereIsAnErrorWithItsName) {
  const absl::Status status =
      WriteFailureRecord(Path("no/such/file"), {.message = "text", .traceback = ""}, 1);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no/such/file"));
}

TEST_F(FailureRecordTest, WhatIsNoFileIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  EXPECT_EQ(ReadFailureRecord(Path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFailureRecord(dir_.string()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FailureRecordTest, OfALongTracebackTheEndIsKept) {
  std::string frames;
  for (int i = 0; i < 2000; ++i) frames += "frame " + std::to_string(i) + "\\n";
  Put(R"({"message": {"message": "m", "extraInfo": {"py_callstack": ")" + frames + R"("}}})");
  const auto record = ReadFailureRecord(Path());
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_LE(record->traceback.size(), kFailureMessageBytesMax);
  EXPECT_EQ(record->traceback.substr(0, 6), "frame ");
  EXPECT_NE(record->traceback.find("frame 1999"), std::string::npos);
}

}  // namespace
}  // namespace ddprun
