// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/python_frames.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/hang/python_lines.h"

namespace ddprun {
namespace {

// `enum _frameowner` (Include/internal/pycore_frame.h): from here on they are of the interpreter
// itself, with no Python code of their own.
constexpr std::uint8_t kOwnerInterpreter = 3;

constexpr std::int64_t kCodeUnitBytes = 2;

// The lowest bits of a _PyStackRef (3.14, Include/internal/pycore_stackref.h) are a tag.
constexpr std::uint64_t kTagBits = 7;

void AppendUtf8(std::uint32_t c, std::string& text) {
  const bool is_control = c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029;
  const bool is_none = (c >= 0xd800 && c < 0xe000) || c > 0x10ffff;
  if (is_control || is_none) c = '?';
  const auto tail = [&](int shift) {
    text.push_back(static_cast<char>(0x80 | (c >> shift & 0x3f)));
  };
  if (c < 0x80) {
    text.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    text.push_back(static_cast<char>(0xc0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    text.push_back(static_cast<char>(0xe0 | c >> 12));
    tail(6);
    tail(0);
  } else {
    text.push_back(static_cast<char>(0xf0 | c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

class Reader {
 public:
  Reader(ReadMemory read, std::uint64_t runtime, const PythonLayout& layout)
      : read_(read), runtime_(runtime), layout_(layout) {}

  PythonThreads Read();

 private:
  struct State {
    std::uint64_t address;
    bool holds_gil;
  };

  template <typename Value>
  std::optional<Value> At(std::uint64_t address) const {
    Value value{};
    if (!read_(address, &value, sizeof value)) return std::nullopt;
    return value;
  }
  // 0: it cannot be read, or is 0.
  std::uint64_t PointerAt(std::uint64_t address) const {
    return At<std::uint64_t>(address).value_or(0);
  }

  std::vector<State> States() const;
  std::uint64_t GilHolder(std::uint64_t interpreter) const;
  PythonThread ReadThread(const State& state);
  bool ReadFrames(std::uint64_t thread, std::vector<PythonFrame>& frames);
  bool IsCode(std::uint64_t object);
  PythonFrame ReadFrame(std::uint64_t frame, std::uint64_t code) const;
  std::optional<std::int64_t> InstructionOf(std::uint64_t frame, std::uint64_t code) const;
  std::int64_t LineOf(std::uint64_t frame, std::uint64_t code) const;
  std::string StringAt(std::uint64_t object) const;

  ReadMemory read_;
  const std::uint64_t runtime_;
  const PythonLayout& layout_;
  std::uint64_t code_type_ = 0;
};

// The address of its PyThreadState; 0: nobody holds it.
std::uint64_t Reader::GilHolder(std::uint64_t interpreter) const {
  const bool is_in_runtime = layout_.gil_pointer == PythonLayout::kAbsent;
  const std::uint64_t gil = is_in_runtime ? runtime_ : PointerAt(interpreter + layout_.gil_pointer);
  if (gil == 0 || At<std::int32_t>(gil + layout_.gil_locked) != 1) return 0;
  return PointerAt(gil + layout_.gil_holder);
}

// The threads of all interpreters. Python's lists begin with the newest.
std::vector<Reader::State> Reader::States() const {
  std::vector<State> states;
  std::set<std::uint64_t> seen;
  std::uint64_t interpreter = PointerAt(runtime_ + layout_.interpreters_head);
  while (interpreter != 0 && states.size() < kPythonThreadsMax && seen.insert(interpreter).second) {
    const std::uint64_t holder = GilHolder(interpreter);
    std::uint64_t thread = PointerAt(interpreter + layout_.threads_head);
    while (thread != 0 && states.size() < kPythonThreadsMax && seen.insert(thread).second) {
      states.push_back({thread, thread == holder});
      thread = PointerAt(thread + layout_.thread_next);
    }
    // A ring of interpreters without threads must end, too.
    if (seen.size() > 2 * kPythonThreadsMax) break;
    interpreter = PointerAt(interpreter + layout_.interpreter_next);
  }
  std::reverse(states.begin(), states.end());
  return states;
}

PythonThreads Reader::Read() {
  PythonThreads result;
  const std::vector<State> states = States();
  const std::size_t shown = std::min(states.size(), kStackThreadsMax);
  for (std::size_t i = 0; i < shown; ++i) result.threads.push_back(ReadThread(states[i]));
  result.more = states.size() - shown;
  return result;
}

PythonThread Reader::ReadThread(const State& state) {
  PythonThread thread;
  thread.holds_gil = state.holds_gil;
  thread.handle = PointerAt(state.address + layout_.thread_id);
  if (layout_.native_thread_id != PythonLayout::kAbsent) {
    thread.tid = At<std::int64_t>(state.address + layout_.native_thread_id).value_or(0);
  }
  // One that runs may call and return meanwhile.
  for (int i = 0; i < kPythonReadsMax && !thread.is_whole; ++i) {
    std::vector<PythonFrame> frames;
    thread.is_whole = ReadFrames(state.address, frames);
    if (thread.is_whole || frames.size() > thread.frames.size()) thread.frames = std::move(frames);
    if (thread.frames.size() == kStackFramesMax) break;
  }
  return thread;
}

// Whether those are all of them.
bool Reader::ReadFrames(std::uint64_t thread, std::vector<PythonFrame>& frames) {
  std::uint64_t holder = thread;
  if (layout_.cframe != PythonLayout::kAbsent) holder = PointerAt(thread + layout_.cframe);
  if (holder == 0) return false;
  auto frame = At<std::uint64_t>(holder + layout_.current_frame);
  // The interpreter's own frames are between others, so twice as many end a ring.
  for (std::size_t i = 0; frame.has_value() && i < 2 * kStackFramesMax; ++i) {
    if (*frame == 0) return true;
    if (frames.size() == kStackFramesMax) return false;
    bool is_python = true;
    if (layout_.frame_owner != PythonLayout::kAbsent) {
      const auto owner = At<std::uint8_t>(*frame + layout_.frame_owner);
      if (!owner.has_value()) return false;
      is_python = *owner < kOwnerInterpreter;
    }
    if (is_python) {
      const std::uint64_t code = PointerAt(*frame + layout_.frame_code) & ~kTagBits;
      if (!IsCode(code)) return false;
      frames.push_back(ReadFrame(*frame, code));
    }
    frame = At<std::uint64_t>(*frame + layout_.frame_previous);
  }
  return false;
}

// Also finds out that the layout is another one, as that of a debug build of Python.
bool Reader::IsCode(std::uint64_t object) {
  const std::uint64_t type = object == 0 ? 0 : PointerAt(object + layout_.object_type);
  if (type == 0) return false;
  if (type == code_type_) return true;
  const auto name = At<std::array<char, sizeof "code">>(PointerAt(type + layout_.type_name));
  if (!name.has_value() || std::memcmp(name->data(), "code", name->size()) != 0) return false;
  code_type_ = type;
  return true;
}

PythonFrame Reader::ReadFrame(std::uint64_t frame, std::uint64_t code) const {
  return {.function = StringAt(PointerAt(code + layout_.code_name)),
          .file = StringAt(PointerAt(code + layout_.code_file)),
          .line = LineOf(frame, code)};
}

// In bytes from the start of the code.
std::optional<std::int64_t> Reader::InstructionOf(std::uint64_t frame, std::uint64_t code) const {
  if (layout_.code_start == PythonLayout::kAbsent) {
    const auto last = At<std::int32_t>(frame + layout_.frame_instruction);
    if (!last.has_value()) return std::nullopt;
    // Since 3.10 it counts code units.
    return *last * (layout_.line_table == PythonLineTable::kLnotab ? 1 : kCodeUnitBytes);
  }
  const auto at = At<std::uint64_t>(frame + layout_.frame_instruction);
  if (!at.has_value()) return std::nullopt;
  std::uint64_t start = code + layout_.code_start;
  if (layout_.frame_tlbc_index != PythonLayout::kAbsent) {
    // Without a GIL each thread has its own copy of the code: _PyCodeArray in
    // Include/cpython/code.h of 3.14, a size and pointers. The first one is the code object's.
    const auto index = At<std::int32_t>(frame + layout_.frame_tlbc_index).value_or(0);
    const std::uint64_t copies = PointerAt(code + layout_.code_tlbc);
    if (index > 0 && copies != 0) {
      start = PointerAt(copies + sizeof(std::uint64_t) * (static_cast<std::uint64_t>(index) + 1));
    }
  }
  return static_cast<std::int64_t>(*at - start);
}

std::int64_t Reader::LineOf(std::uint64_t frame, std::uint64_t code) const {
  const auto first = At<std::int32_t>(code + layout_.code_first_line);
  const auto instruction = InstructionOf(frame, code);
  const std::uint64_t bytes = PointerAt(code + layout_.code_lines);
  if (!first.has_value() || !instruction.has_value() || bytes == 0) return 0;
  const std::uint64_t size = PointerAt(bytes + layout_.bytes_size);
  if (size > kPythonLineTableBytesMax) return 0;
  std::string table(size, '\0');
  if (!read_(bytes + layout_.bytes_data, table.data(), table.size())) return 0;
  return PythonLineOf(layout_.line_table, table, *first, *instruction).value_or(0);
}

// Reads a compact str (PEP 393), as all names in code are; '' if it cannot be read.
std::string Reader::StringAt(std::uint64_t object) const {
  const auto state = object == 0 ? std::nullopt : At<std::uint32_t>(object + layout_.str_state);
  const std::uint64_t length = PointerAt(object + layout_.str_length);
  if (!state.has_value() || length == 0) return "";
  const std::uint32_t bits = *state >> layout_.kind_shift;
  const std::uint32_t kind = bits & 7;
  const bool is_compact = (bits & 8) != 0;
  const bool is_ascii = (bits & 16) != 0;
  if (!is_compact || (kind != 1 && kind != 2 && kind != 4)) return "";
  const std::uint64_t shown = std::min(length, kPythonNameCharsMax);
  std::string units(shown * kind, '\0');
  const std::uint64_t data = is_ascii ? layout_.str_ascii_data : layout_.str_other_data;
  if (!read_(object + data, units.data(), units.size())) return "";
  std::string text;
  for (std::size_t i = 0; i < units.size(); i += kind) {
    std::uint32_t c = 0;
    std::memcpy(&c, units.data() + i, kind);
    AppendUtf8(c, text);
  }
  if (shown < length) text += "...";
  return text;
}

}  // namespace

PythonThreads ReadPythonThreads(ReadMemory read, std::uint64_t runtime,
                                const PythonLayout& layout) {
  return Reader(read, runtime, layout).Read();
}

std::string ToText(const PythonFrame& frame) {
  std::string text = frame.function.empty() ? "?" : frame.function;
  if (!frame.file.empty()) absl::StrAppend(&text, " at ", frame.file);
  if (!frame.file.empty() && frame.line > 0) absl::StrAppend(&text, ":", frame.line);
  return text;
}

}  // namespace ddprun
