// SPDX-License-Identifier: Apache-2.0
// Where CPython keeps what leads to its frames, by version. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace ddprun {

// How the lines of a code object are encoded: co_lnotab until 3.9, then co_linetable.
enum class PythonLineTable { kLnotab, kPep626, kLocations };

// In bytes from the start of the structure that the comment names.
struct PythonLayout {
  static constexpr std::uint64_t kAbsent = ~std::uint64_t{0};

  int minor = 0;  // of version 3.minor
  bool free_threaded = false;
  PythonLineTable line_table = PythonLineTable::kLocations;
  unsigned kind_shift = 2;  // in the state of a str: kind (3 bits), compact, ascii

  std::uint64_t interpreters_head = kAbsent;  // _PyRuntimeState
  std::uint64_t interpreter_next = kAbsent;   // PyInterpreterState
  std::uint64_t threads_head = kAbsent;       // PyInterpreterState
  std::uint64_t gil_pointer = kAbsent;        // PyInterpreterState; absent: it is in the runtime
  std::uint64_t gil_holder = kAbsent;         // the GIL's, or of absent gil_pointer the runtime
  std::uint64_t gil_locked = kAbsent;         // likewise
  std::uint64_t thread_next = kAbsent;        // PyThreadState
  std::uint64_t thread_id = kAbsent;          // PyThreadState; pthread_self()
  std::uint64_t native_thread_id = kAbsent;   // PyThreadState
  std::uint64_t cframe = kAbsent;             // PyThreadState
  std::uint64_t current_frame = kAbsent;      // _PyCFrame, or of absent cframe PyThreadState
  std::uint64_t frame_previous = kAbsent;     // the frame
  std::uint64_t frame_code = kAbsent;         // the frame
  std::uint64_t frame_instruction = kAbsent;  // the frame; a pointer, without code_start a number
  std::uint64_t frame_owner = kAbsent;        // the frame
  std::uint64_t frame_tlbc_index = kAbsent;   // the frame
  std::uint64_t code_file = kAbsent;          // PyCodeObject
  std::uint64_t code_name = kAbsent;          // PyCodeObject
  std::uint64_t code_lines = kAbsent;         // PyCodeObject
  std::uint64_t code_first_line = kAbsent;    // PyCodeObject
  std::uint64_t code_start = kAbsent;         // PyCodeObject
  std::uint64_t code_tlbc = kAbsent;          // PyCodeObject
  std::uint64_t object_type = kAbsent;        // PyObject
  std::uint64_t type_name = kAbsent;          // PyTypeObject
  std::uint64_t bytes_size = kAbsent;         // PyBytesObject
  std::uint64_t bytes_data = kAbsent;         // PyBytesObject
  std::uint64_t str_length = kAbsent;         // PyASCIIObject
  std::uint64_t str_state = kAbsent;          // PyASCIIObject
  std::uint64_t str_ascii_data = kAbsent;     // sizeof(PyASCIIObject)
  std::uint64_t str_other_data = kAbsent;     // sizeof(PyCompactUnicodeObject)
};

inline constexpr int kPythonMinorMin = 9;
inline constexpr int kPythonMinorMax = 15;

// The layout of 3.9 to 3.12, which do not describe themselves; absent for others.
std::optional<PythonLayout> PythonLayoutOf(int minor);

// The start of _PyRuntime that is enough for DescribedPythonLayout().
inline constexpr std::size_t kPythonDebugOffsetsBytes = 96 * sizeof(std::uint64_t);

// Whether the start of _PyRuntime is a _Py_DebugOffsets, and of which 3.minor.
std::optional<int> DescribedPythonMinor(absl::string_view runtime);

// The layout of 3.13 to 3.15, from their _Py_DebugOffsets; absent for others.
std::optional<PythonLayout> DescribedPythonLayout(absl::string_view runtime);

}  // namespace ddprun
