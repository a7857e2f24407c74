// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/python_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddprun {
namespace {

// Lines of one function, by CPython 3.9.18, 3.10.13 and 3.11.7: compile() of
//   def f(x):            a loop from line 7 with try (8), h() (9), except E (10) and pass (11),
//       a = 1 ...        after a list of several lines (4 to 6)
struct Expected {
  std::int64_t instruction;
  std::int64_t line;
};

void ExpectLines(PythonLineTable kind, const std::string& table,
                 const std::vector<Expected>& lines) {
  for (const Expected& expected : lines) {
    EXPECT_EQ(PythonLineOf(kind, table, 1, expected.instruction), expected.line)
        << "at " << expected.instruction;
  }
}

constexpr char kLnotab[] =
    "\x00\x01\x04\x03\x02\x01\x06\xfe\x04\x03\x08\x01\x02\x01\x0a\x01\x0c\x01\x08\x01";
constexpr char kPep626[] =
    "\x04\x01\x02\x03\x06\x01\x04\xfe\x08\x03\x02\x01\x0a\x01\x0c\x01\x04\x01\x02\xff\x04\x02";
constexpr char kLocations[] =
    "\x80\x00\xd8\x08\x09\x80\x41\xf0\x06\x00\x09\x0a\xdd\x08\x09\x88\x21\x89\x04\x8c\x04\xf0\x05"
    "\x02\x09\x0e\x80\x41\xf0\x06\x00\x0e\x0f\xf0\x00\x04\x05\x11\xf0\x00\x04\x05\x11\x88\x01\xf0"
    "\x02\x03\x09\x11\xdd\x0c\x0d\x89\x43\x8c\x43\x88\x43\x88\x43\xf8\xdd\x0f\x10\xf0\x00\x01\x09"
    "\x11\xf0\x00\x01\x09\x11\xf0\x00\x01\x09\x11\xd8\x0c\x10\x88\x44\xf0\x03\x01\x09\x11\xf8\xf8"
    "\xf8\xe0\x0b\x0c\x80\x48";

template <std::size_t N>
std::string Bytes(const char (&text)[N]) {
  return std::string(text, N - 1);
}

TEST(PythonLinesTest, LnotabOf39) {
  ExpectLines(PythonLineTable::kLnotab, Bytes(kLnotab),
              {{-1, 1},
               {0, 2},
               {4, 5},
               {6, 6},
               {12, 4},
               {14, 4},
               {16, 7},
               {24, 8},
               {26, 9},
               {36, 10},
               {48, 11},
               {56, 12},
               {58, 12}});
}

TEST(PythonLinesTest, Pep626Of310) {
  ExpectLines(PythonLineTable::kPep626, Bytes(kPep626),
              {{-2, 1},
               {0, 2},
               {4, 5},
               {6, 6},
               {12, 4},
               {16, 7},
               {24, 8},
               {26, 9},
               {36, 10},
               {48, 11},
               {52, 10},
               {54, 12}});
}

TEST(PythonLinesTest, LocationsOf311) {
  ExpectLines(PythonLineTable::kLocations, Bytes(kLocations),
              {{-2, 1},
               {0, 1},
               {2, 2},
               {6, 5},
               {20, 6},
               {36, 4},
               {40, 7},
               {48, 8},
               {62, 9},
               {82, 10},
               {100, 11},
               {104, 10},
               {114, 12}});
  EXPECT_EQ(PythonLineOf(PythonLineTable::kLocations, Bytes(kLocations), 1, 80), std::nullopt);
}

TEST(PythonLinesTest, CodeWithoutALineHasNone) {
  // -128 is no distance: the piece after it counts from the one before.
  const std::string table = Bytes("\x02\x01\x02\x80\x02\x01");
  EXPECT_EQ(PythonLineOf(PythonLineTable::kPep626, table, 10, 0), 11);
  EXPECT_EQ(PythonLineOf(PythonLineTable::kPep626, table, 10, 2), std::nullopt);
  EXPECT_EQ(PythonLineOf(PythonLineTable::kPep626, table, 10, 4), 12);
}

TEST(PythonLinesTest, LongDistancesAreSignedVarints) {
  // Form 13 (no columns), one code unit each: +100, then -70.
  const std::string table = Bytes("\xe8\x48\x03\xe8\x4d\x02");
  EXPECT_EQ(PythonLineOf(PythonLineTable::kLocations, table, 1, 0), 101);
  EXPECT_EQ(PythonLineOf(PythonLineTable::kLocations, table, 1, 2), 31);
}

TEST(PythonLinesTest, DamagedTablesEnd) {
  for (const auto kind :
       {PythonLineTable::kLnotab, PythonLineTable::kPep626, PythonLineTable::kLocations}) {
    for (int byte = 0; byte < 256; ++byte) {
      for (const std::size_t size : {0, 1, 2, 3, 1000}) {
        PythonLineOf(kind, std::string(size, static_cast<char>(byte)), 1, 1 << 30);
      }
    }
  }
  EXPECT_EQ(PythonLineOf(PythonLineTable::kPep626, "", 1, 0), std::nullopt);
  EXPECT_EQ(PythonLineOf(PythonLineTable::kLocations, "", 1, 0), std::nullopt);
}

}  // namespace
}  // namespace ddprun
