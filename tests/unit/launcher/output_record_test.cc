// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/output_record.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr OutputBounds kSmall{.segment_bytes = 100, .all_bytes = 1000};

class OutputRecordTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/output_record_test_XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

void Write(OutputWriter& writer, FrameKind kind, absl::string_view text) {
  writer.Add(kind, text);
  ASSERT_TRUE(writer.Write().ok());
  ASSERT_FALSE(writer.pending());
}

std::uint64_t BytesIn(const std::string& folder) {
  std::uint64_t all = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) all += entry.file_size();
  return all;
}

TEST_F(OutputRecordTest, IsReadWhileItGrows) {
  OutputWriter writer(folder_, kSmall);
  OutputReader reader(folder_, 0);
  EXPECT_FALSE(reader.Next()->has_value());
  Write(writer, FrameKind::kOut, "one\n");
  EXPECT_EQ(**reader.Next(), (OutputFrame{FrameKind::kOut, "one\n"}));
  EXPECT_FALSE(reader.Next()->has_value());
  Write(writer, FrameKind::kErr, "two\n");
  EXPECT_EQ(**reader.Next(), (OutputFrame{FrameKind::kErr, "two\n"}));
  EXPECT_EQ(reader.position(), writer.position());
}

// Readers that are cut and begin again where they were, at random, see each byte once.
TEST_F(OutputRecordTest, NoByteIsLostOrDoubledOverAThousandCuts) {
  OutputWriter writer(folder_, {.segment_bytes = 100, .all_bytes = 1u << 30});
  std::mt19937 generator(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(generator() % n); };
  std::string written;
  std::string read;
  std::uint64_t position = 0;
  for (int cut = 0; cut < 1000; ++cut) {
    for (std::size_t frames = below(4); frames > 0; --frames) {
      std::string text(below(60), static_cast<char>('a' + cut % 26));
      written += text;
      Write(writer, below(2) == 0 ? FrameKind::kOut : FrameKind::kErr, text);
    }
    OutputReader reader(folder_, position);
    for (std::size_t frames = below(5); frames > 0; --frames) {
      const auto frame = reader.Next();
      ASSERT_TRUE(frame.ok()) << frame.status();
      if (!frame->has_value()) break;
      read += (*frame)->bytes;
    }
    position = reader.position();
  }
  OutputReader rest(folder_, position);
  for (auto frame = rest.Next(); frame->has_value(); frame = rest.Next()) read += (*frame)->bytes;
  EXPECT_EQ(read, written);
}

TEST_F(OutputRecordTest, TheOldestGoAndAReaderIsToldHowMuch) {
  OutputWriter writer(folder_, kSmall);
  OutputReader behind(folder_, 0);
  Write(writer, FrameKind::kOut, "first");
  EXPECT_EQ((*behind.Next())->bytes, "first");
  for (int i = 0; i < 500; ++i) {
    Write(writer, FrameKind::kOut, absl::StrCat("line ", i, "\n"));
    EXPECT_LE(BytesIn(folder_), kSmall.all_bytes + 20) << i;
  }
  // It holds the file of its place open, which is gone, and reads that to its end.
  std::string last;
  std::uint64_t seen = 0;
  std::uint64_t gap = 0;
  for (auto frame = behind.Next(); frame->has_value(); frame = behind.Next()) {
    if ((*frame)->kind == FrameKind::kGap) {
      std::uint64_t bytes = 0;
      ASSERT_TRUE(absl::SimpleAtoi((*frame)->bytes, &bytes));
      gap += bytes;
      continue;
    }
    last = (*frame)->bytes;
    seen += kFrameHeaderBytes + last.size();
  }
  EXPECT_GT(gap, 0u);
  EXPECT_EQ(last, "line 499\n");
  EXPECT_EQ(kFrameHeaderBytes + 5 + seen + gap, writer.position());
  // One that begins now is told the same of what was before.
  OutputReader late(folder_, 0);
  EXPECT_EQ(**late.Next(), (OutputFrame{FrameKind::kGap, absl::StrCat(*FirstPosition(folder_))}));
}

TEST_F(OutputRecordTest, AFullDiskTakesTheRestLater) {
  OutputWriter writer(folder_);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  writer.Add(FrameKind::kOut, "twenty bytes of text");
  const absl::Status refused = writer.Write();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(writer.pending());
  OutputReader reader(folder_, 0);
  EXPECT_FALSE(reader.Next()->has_value());  // a part of a frame is none
  ASSERT_TRUE(writer.Write().ok());
  EXPECT_EQ((*reader.Next())->bytes, "twenty bytes of text");
}

TEST_F(OutputRecordTest, OtherFilesAreNoRecord) {
  std::ofstream(folder_ + "/output-00000000000000000000") << "Zebra";
  OutputReader reader(folder_, 0);
  const auto frame = reader.Next();
  EXPECT_EQ(frame.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(frame.status().message().find(folder_), absl::string_view::npos);
}

}  // namespace
}  // namespace ddprun
