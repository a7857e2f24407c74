// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/python_layout.h"

#include <array>
#include <cstring>

#include "absl/strings/match.h"

namespace ddprun {
namespace {

constexpr int kNo = -1;
constexpr char kCookie[] = "xdebugpy";
constexpr int kDescribedMinorMin = 13;

// For 3.9 to 3.12 the offset itself, by offsetof() with the headers of 3.9.18, 3.10.13, 3.11.7 and
// 3.12.1 on x86_64; what comes before these members has the same sizes on aarch64. For 3.13 to
// 3.15 the index, in words of 8 bytes, of the offset in _Py_DebugOffsets.
struct Field {
  std::uint64_t PythonLayout::*member;
  std::array<int, 4> offsets;
  std::array<int, 3> words;
};

// Sources: Include/internal/pycore_runtime.h, pycore_interp.h, pycore_gil.h, pycore_frame.h,
// pycore_debug_offsets.h (3.13: in pycore_runtime.h), Include/cpython/pystate.h, code.h,
// frameobject.h, unicodeobject.h, bytesobject.h, Include/object.h.
constexpr Field kFields[] = {
    // _PyRuntimeState.interpreters.head
    {&PythonLayout::interpreters_head, {32, 32, 40, 40}, {5, 5, 5}},
    // PyInterpreterState.next; .tstate_head (3.9, 3.10), .threads.head; .ceval.gil
    {&PythonLayout::interpreter_next, {0, 0, 0, 0}, {8, 8, 8}},
    {&PythonLayout::threads_head, {8, 8, 16, 72}, {9, 9, 9}},
    {&PythonLayout::gil_pointer, {kNo, kNo, kNo, 384}, {14, 15, 15}},
    // _PyRuntimeState.ceval.gil.last_holder, .locked (until 3.11); _gil_runtime_state.last_holder,
    // .locked (3.12); PyInterpreterState._gil.last_holder, .locked
    {&PythonLayout::gil_holder, {360, 360, 368, 8}, {18, 19, 19}},
    {&PythonLayout::gil_locked, {368, 368, 376, 16}, {17, 18, 18}},
    // PyThreadState.next, .thread_id, .native_thread_id
    {&PythonLayout::thread_next, {8, 8, 8, 8}, {21, 24, 24}},
    {&PythonLayout::thread_id, {176, 176, 152, 136}, {24, 27, 30}},
    {&PythonLayout::native_thread_id, {kNo, kNo, 160, 144}, {25, 28, 31}},
    // PyThreadState.cframe (3.11, 3.12); PyThreadState.frame (3.9, 3.10), _PyCFrame.current_frame
    // (3.11, 3.12), PyThreadState.current_frame
    {&PythonLayout::cframe, {kNo, kNo, 56, 56}, {kNo, kNo, kNo}},
    {&PythonLayout::current_frame, {24, 24, 8, 0}, {23, 26, 26}},
    // PyFrameObject.f_back, .f_code, .f_lasti (3.9, 3.10); _PyInterpreterFrame.previous, .f_code
    // (later .f_executable), .prev_instr (later .instr_ptr), .owner, .tlbc_index
    {&PythonLayout::frame_previous, {24, 24, 48, 8}, {29, 32, 40}},
    {&PythonLayout::frame_code, {32, 32, 32, 0}, {30, 33, 41}},
    {&PythonLayout::frame_instruction, {104, 96, 56, 56}, {31, 34, 42}},
    {&PythonLayout::frame_owner, {kNo, kNo, 69, 70}, {33, 36, 44}},
    {&PythonLayout::frame_tlbc_index, {kNo, kNo, kNo, kNo}, {kNo, 38, 46}},
    // PyCodeObject.co_filename; .co_name (3.9, 3.10), .co_qualname; .co_lnotab (3.9),
    // .co_linetable; .co_firstlineno, .co_code_adaptive, .co_tlbc
    {&PythonLayout::code_file, {104, 104, 112, 112}, {35, 40, 48}},
    {&PythonLayout::code_name, {112, 112, 128, 128}, {37, 42, 50}},
    {&PythonLayout::code_lines, {120, 120, 136, 136}, {38, 43, 51}},
    {&PythonLayout::code_first_line, {40, 40, 72, 68}, {39, 44, 52}},
    {&PythonLayout::code_start, {kNo, kNo, 184, 192}, {43, 48, 56}},
    {&PythonLayout::code_tlbc, {kNo, kNo, kNo, kNo}, {kNo, 49, 57}},
    // PyObject.ob_type, PyTypeObject.tp_name
    {&PythonLayout::object_type, {8, 8, 8, 8}, {45, 51, 59}},
    {&PythonLayout::type_name, {24, 24, 24, 24}, {47, 53, 61}},
    // PyVarObject.ob_size, PyBytesObject.ob_sval
    {&PythonLayout::bytes_size, {16, 16, 16, 16}, {65, 75, 87}},
    {&PythonLayout::bytes_data, {32, 32, 32, 32}, {66, 76, 88}},
    // PyASCIIObject.length, .state, its size, and that of PyCompactUnicodeObject (not described)
    {&PythonLayout::str_length, {16, 16, 16, 16}, {69, 79, 91}},
    {&PythonLayout::str_state, {32, 32, 32, 32}, {68, 78, 90}},
    {&PythonLayout::str_ascii_data, {48, 48, 48, 40}, {70, 80, 92}},
    {&PythonLayout::str_other_data, {72, 72, 72, 56}, {kNo, kNo, kNo}},
};

// Indices of words in _Py_DebugOffsets that have no field in PythonLayout.
constexpr int kWordVersion = 1;
constexpr int kWordFreeThreaded = 2;
constexpr std::array<int, 3> kWordOwnGil = {15, 16, 16};  // interpreter_state.gil_runtime_state

// In a PyCompactUnicodeObject since 3.12, after its PyASCIIObject: utf8_length, utf8.
constexpr std::uint64_t kCompactUnicodeBytes = 2 * sizeof(std::uint64_t);

// Larger ones are none: the largest structure, PyInterpreterState, has 300 KB.
constexpr std::uint64_t kOffsetMax = 1u << 24;

std::uint64_t WordOf(absl::string_view runtime, int word) {
  std::uint64_t value = 0;
  std::memcpy(&value, runtime.data() + static_cast<std::size_t>(word) * sizeof value, sizeof value);
  return value;
}

}  // namespace

std::optional<PythonLayout> PythonLayoutOf(int minor) {
  if (minor < kPythonMinorMin || minor >= kDescribedMinorMin) return std::nullopt;
  PythonLayout layout;
  layout.minor = minor;
  if (minor == 9) layout.line_table = PythonLineTable::kLnotab;
  if (minor == 10) layout.line_table = PythonLineTable::kPep626;
  for (const Field& field : kFields) {
    const int offset = field.offsets[static_cast<std::size_t>(minor - kPythonMinorMin)];
    if (offset != kNo) layout.*field.member = static_cast<std::uint64_t>(offset);
  }
  return layout;
}

std::optional<int> DescribedPythonMinor(absl::string_view runtime) {
  if (runtime.size() < kPythonDebugOffsetsBytes || !absl::StartsWith(runtime, kCookie)) {
    return std::nullopt;
  }
  // PY_VERSION_HEX: 0x030d00f0 is 3.13.0.
  const std::uint64_t version = WordOf(runtime, kWordVersion);
  if (version >> 24 != 3) return std::nullopt;
  return static_cast<int>(version >> 16 & 0xff);
}

std::optional<PythonLayout> DescribedPythonLayout(absl::string_view runtime) {
  const std::optional<int> minor = DescribedPythonMinor(runtime);
  if (!minor.has_value() || *minor < kDescribedMinorMin || *minor > kPythonMinorMax) {
    return std::nullopt;
  }
  const auto column = static_cast<std::size_t>(*minor - kDescribedMinorMin);
  PythonLayout layout;
  layout.minor = *minor;
  layout.free_threaded = WordOf(runtime, kWordFreeThreaded) != 0;
  // Since 3.14 `interned` is a byte of its own there (Include/cpython/unicodeobject.h).
  if (layout.free_threaded && *minor >= 14) layout.kind_shift = 8;
  for (const Field& field : kFields) {
    const int word = field.words[column];
    if (word == kNo) continue;
    layout.*field.member = WordOf(runtime, word);
    if (layout.*field.member > kOffsetMax) return std::nullopt;
  }
  layout.str_other_data = layout.str_ascii_data + kCompactUnicodeBytes;
  // They are described as members of the interpreter, whose own GIL it may not use.
  const std::uint64_t own_gil = WordOf(runtime, kWordOwnGil[column]);
  layout.gil_holder -= own_gil;
  layout.gil_locked -= own_gil;
  if (!layout.free_threaded) {
    layout.frame_tlbc_index = PythonLayout::kAbsent;
    layout.code_tlbc = PythonLayout::kAbsent;
  }
  return layout;
}

}  // namespace ddprun
