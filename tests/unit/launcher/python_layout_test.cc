// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/python_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/launcher/python_fixture.h"

namespace ddprun {
namespace {

// By offsetof() with the headers of CPython 3.13.0.
TEST(PythonLayoutTest, TheTableOf313IsRead) {
  const auto layout = DescribedPythonLayout(DebugOffsets(13));
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->minor, 13);
  EXPECT_FALSE(layout->free_threaded);
  EXPECT_EQ(layout->interpreters_head, 632u);
  EXPECT_EQ(layout->interpreter_next, 7264u);
  EXPECT_EQ(layout->threads_head, 7344u);
  EXPECT_EQ(layout->gil_pointer, 16u);
  EXPECT_EQ(layout->gil_holder, 8u);
  EXPECT_EQ(layout->gil_locked, 16u);
  EXPECT_EQ(layout->thread_next, 8u);
  EXPECT_EQ(layout->current_frame, 72u);
  EXPECT_EQ(layout->native_thread_id, 160u);
  EXPECT_EQ(layout->frame_previous, 8u);
  EXPECT_EQ(layout->frame_code, 0u);
  EXPECT_EQ(layout->frame_instruction, 56u);
  EXPECT_EQ(layout->frame_owner, 70u);
  EXPECT_EQ(layout->code_file, 112u);
  EXPECT_EQ(layout->code_name, 128u);
  EXPECT_EQ(layout->code_lines, 136u);
  EXPECT_EQ(layout->code_first_line, 68u);
  EXPECT_EQ(layout->code_start, 200u);
  EXPECT_EQ(layout->bytes_data, 32u);
  EXPECT_EQ(layout->str_state, 32u);
  EXPECT_EQ(layout->str_ascii_data, 40u);
  EXPECT_EQ(layout->str_other_data, 56u);
}

TEST(PythonLayoutTest, LaterTablesHaveMoreMembers) {
  for (const int minor : {14, 15}) {
    const auto layout = DescribedPythonLayout(DebugOffsets(minor));
    ASSERT_TRUE(layout.has_value()) << minor;
    EXPECT_EQ(layout->gil_holder, 8u) << minor;
    EXPECT_EQ(layout->gil_locked, 16u) << minor;
    EXPECT_EQ(layout->thread_id, minor == 14 ? 152u : 176u);
    EXPECT_EQ(layout->native_thread_id, minor == 14 ? 160u : 184u);
    EXPECT_EQ(layout->frame_owner, 74u) << minor;
    EXPECT_EQ(layout->frame_tlbc_index, PythonLayout::kAbsent) << "only without a GIL";
    EXPECT_EQ(layout->code_start, 208u) << minor;
    EXPECT_EQ(layout->str_other_data, 56u) << minor;
    EXPECT_EQ(layout->kind_shift, 2u) << minor;
  }
}

TEST(PythonLayoutTest, ATableIsNotTrusted) {
  EXPECT_EQ(DescribedPythonMinor(""), std::nullopt);
  EXPECT_EQ(DescribedPythonMinor(std::string(kPythonDebugOffsetsBytes, 'x')), std::nullopt);
  std::string table = DebugOffsets(13);
  EXPECT_EQ(DescribedPythonMinor(table), 13);
  table[10] = 16;  // the version, 0x030d00f0
  EXPECT_EQ(DescribedPythonMinor(table), 16);
  EXPECT_FALSE(DescribedPythonLayout(table).has_value()) << "not a known one";
  table = DebugOffsets(13);
  table[5 * 8 + 7] = 1;
  EXPECT_FALSE(DescribedPythonLayout(table).has_value()) << "an offset of 2^56";
}

TEST(PythonLayoutTest, OlderVersionsHaveTheirOwn) {
  for (const int minor : {9, 10, 11, 12}) EXPECT_EQ(PythonLayoutOf(minor)->minor, minor);
  for (const int minor : {-1, 0, 8, 13, 14, 100}) EXPECT_FALSE(PythonLayoutOf(minor).has_value());
  EXPECT_EQ(PythonLayoutOf(9)->line_table, PythonLineTable::kLnotab);
  EXPECT_EQ(PythonLayoutOf(10)->line_table, PythonLineTable::kPep626);
  EXPECT_EQ(PythonLayoutOf(11)->line_table, PythonLineTable::kLocations);
}

}  // namespace
}  // namespace ddprun
