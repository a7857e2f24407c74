// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/python_lines.h"

#include <cstddef>

namespace ddprun {
namespace {

// CPython 3.9, Objects/lnotab_notes.txt: pairs of (bytes of code, signed lines), each the distance
// from the one before.
std::int64_t LineInLnotab(absl::string_view table, std::int64_t line, std::int64_t instruction) {
  std::int64_t address = 0;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    address += static_cast<unsigned char>(table[i]);
    if (address > instruction) break;
    line += static_cast<signed char>(table[i + 1]);
  }
  return line;
}

// CPython 3.10, Objects/lnotab_notes.txt (PEP 626): pairs of (length of a piece of code in bytes,
// signed lines from the piece before); -128: it has no line, and the next one counts from the one
// before it.
std::optional<std::int64_t> LineInPep626(absl::string_view table, std::int64_t line,
                                         std::int64_t instruction) {
  constexpr int kNoLine = -128;
  std::int64_t end = 0;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    end += static_cast<unsigned char>(table[i]);
    const int delta = static_cast<signed char>(table[i + 1]);
    if (delta != kNoLine) line += delta;
    if (instruction < end) return delta == kNoLine ? std::nullopt : std::optional(line);
  }
  return std::nullopt;
}

// A number of CPython 3.11, Objects/locations.md: 6 bits a byte, the lowest first; bit 6: another
// one follows. Then the lowest bit is the sign.
std::int64_t SignedVarint(absl::string_view bytes) {
  std::uint64_t value = 0;
  int shift = 0;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (shift < 30) value |= std::uint64_t{byte & 0x3fu} << shift;
    shift += 6;
    if ((byte & 0x40) == 0) break;
  }
  const auto number = static_cast<std::int64_t>(value >> 1);
  return (value & 1) != 0 ? -number : number;
}

// The lines that an entry is after the one before it; absent: its code belongs to no line.
std::optional<std::int64_t> LinesAhead(unsigned code, absl::string_view rest) {
  switch (code) {
    case 15:  // none
      return std::nullopt;
    case 14:  // long form
    case 13:  // without columns
      return SignedVarint(rest);
    case 12:  // one line form
    case 11:
    case 10:
      return code - 10;
    default:  // short form
      return 0;
  }
}

// CPython 3.11, Objects/locations.md: the first byte of an entry has bit 7 set, then 4 bits say
// how it goes on, and 3 bits how many code units it is about, less one.
std::optional<std::int64_t> LineInLocations(absl::string_view table, std::int64_t line,
                                            std::int64_t instruction) {
  constexpr std::int64_t kCodeUnitBytes = 2;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < table.size();) {
    const auto first = static_cast<unsigned char>(table[i]);
    std::size_t next = i + 1;
    while (next < table.size() && (static_cast<unsigned char>(table[next]) & 0x80) == 0) ++next;
    const auto ahead = LinesAhead(first >> 3 & 15u, table.substr(i + 1, next - i - 1));
    line += ahead.value_or(0);
    end += ((first & 7) + 1) * kCodeUnitBytes;
    if (instruction < end) return ahead.has_value() ? std::optional(line) : std::nullopt;
    i = next;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> PythonLineOf(PythonLineTable kind, absl::string_view table,
                                         std::int64_t first_line, std::int64_t instruction) {
  if (instruction < 0) return first_line;
  switch (kind) {
    case PythonLineTable::kLnotab:
      return LineInLnotab(table, first_line, instruction);
    case PythonLineTable::kPep626:
      return LineInPep626(table, first_line, instruction);
    case PythonLineTable::kLocations:
      return LineInLocations(table, first_line, instruction);
  }
  return std::nullopt;
}

}  // namespace ddprun
