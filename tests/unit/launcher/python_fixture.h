// SPDX-License-Identifier: Apache-2.0
// The memory of a Python process, made up, for each version.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "launcher/hang/python_layout.h"

namespace ddprun {

// The start of _PyRuntime in a Python 3.13.0, 3.14.10 or 3.15.2 (x86_64, with a GIL).
inline std::string DebugOffsets(int minor) {
  std::vector<std::uint64_t> words;
  if (minor == 13) {
    words = {0x7970677562656478,
             0x30d00f0,
             0,
             283320,
             608,
             632,
             194968,
             7272,
             7264,
             7344,
             7400,
             7656,
             7640,
             7648,
             16,
             7752,
             0,
             7768,
             7760,
             304,
             0,
             8,
             16,
             72,
             152,
             160,
             232,
             32,
             80,
             8,
             0,
             56,
             72,
             70,
             208,
             112,
             120,
             128,
             136,
             68,
             52,
             96,
             104,
             200,
             16,
             8,
             416,
             24,
             88,
             168,
             32,
             24,
             16,
             40,
             24,
             16,
             48,
             32,
             40,
             24,
             16,
             32,
             16,
             24,
             40,
             16,
             32,
             64,
             32,
             16,
             40,
             240,
             200};
  } else if (minor == 14) {
    words = {0x7970677562656478,
             0x30e0af0,
             0,
             316616,
             784,
             808,
             225864,
             7280,
             7272,
             7344,
             7360,
             7408,
             7688,
             7672,
             7680,
             16,
             7784,
             0,
             7800,
             7792,
             7992,
             0,
             832,
             0,
             8,
             16,
             72,
             152,
             160,
             232,
             32,
             88,
             8,
             0,
             56,
             80,
             74,
             64,
             0,
             216,
             112,
             120,
             128,
             136,
             68,
             52,
             96,
             104,
             208,
             0,
             16,
             8,
             416,
             24,
             88,
             168,
             40,
             32,
             16,
             40,
             24,
             16,
             200,
             24,
             40,
             32,
             48,
             32,
             40,
             24,
             16,
             32,
             16,
             24,
             40,
             16,
             32,
             64,
             32,
             16,
             40,
             264,
             192,
             160,
             24,
             72,
             67,
             0,
             8,
             24,
             304,
             8076,
             0,
             4,
             512};
  } else {
    words = {0x7970677562656478,
             0x30f02f0,
             0,
             346568,
             912,
             936,
             226240,
             7272,
             7264,
             7336,
             7352,
             7400,
             7592,
             7576,
             7584,
             16,
             7736,
             0,
             7752,
             7744,
             7944,
             0,
             888,
             0,
             8,
             16,
             72,
             80,
             88,
             96,
             176,
             184,
             256,
             32,
             36,
             40,
             136,
             288,
             0,
             88,
             8,
             0,
             56,
             80,
             74,
             64,
             0,
             216,
             112,
             120,
             128,
             136,
             68,
             52,
             96,
             104,
             208,
             0,
             16,
             8,
             424,
             24,
             88,
             168,
             32,
             288,
             944,
             888,
             40,
             32,
             16,
             40,
             24,
             16,
             200,
             24,
             40,
             32,
             48,
             32,
             40,
             24,
             16,
             32,
             16,
             24,
             40,
             16,
             32,
             64,
             32,
             16,
             40,
             56,
             176,
             112,
             120,
             1120,
             104,
             160,
             24,
             72,
             67,
             0,
             8,
             24,
             344,
             8028,
             0,
             4,
             512};
  }
  words.resize(kPythonDebugOffsetsBytes / sizeof(std::uint64_t) + 32);
  return std::string(reinterpret_cast<const char*>(words.data()), words.size() * 8);
}

inline PythonLayout LayoutFor(int minor) {
  return minor < 13 ? *PythonLayoutOf(minor) : *DescribedPythonLayout(DebugOffsets(minor));
}

// Objects that are made one after another, with nothing mapped in between.
class PythonImage {
 public:
  explicit PythonImage(const PythonLayout& layout) : layout_(layout) {
    code_type_ = Object(512);
    const std::uint64_t name = Object(8);
    std::memcpy(bytes_[name].data(), "code", 5);
    Put(code_type_ + layout_.type_name, name);
  }

  bool Read(std::uint64_t address, void* to, std::size_t size) const {
    auto it = bytes_.upper_bound(address);
    if (it == bytes_.begin()) return false;
    --it;
    const std::uint64_t offset = address - it->first;
    if (offset > it->second.size() || size > it->second.size() - offset) return false;
    std::memcpy(to, it->second.data() + offset, size);
    return true;
  }

  std::uint64_t Object(std::size_t size) {
    const std::uint64_t address = next_;
    next_ += (size + 0x1fff) & ~std::uint64_t{0xfff};
    bytes_[address] = std::string(size, '\0');
    return address;
  }

  template <typename Value>
  void Put(std::uint64_t address, Value value) {
    auto& [start, bytes] = *--bytes_.upper_bound(address);
    std::memcpy(bytes.data() + (address - start), &value, sizeof value);
  }

  // Characters of `kind` bytes.
  std::uint64_t Str(const std::u32string& text, std::uint32_t kind, bool is_ascii) {
    const std::uint64_t data = is_ascii ? layout_.str_ascii_data : layout_.str_other_data;
    const std::uint64_t object = Object(data + (text.size() + 1) * kind);
    Put(object + layout_.str_length, std::uint64_t{text.size()});
    const std::uint32_t state = kind | 8u | (is_ascii ? 16u : 0u);
    Put(object + layout_.str_state, state << layout_.kind_shift | 1u);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto c = static_cast<std::uint32_t>(text[i]);
      std::memcpy(bytes_[object].data() + data + i * kind, &c, kind);
    }
    return object;
  }

  // Its first two instructions are of the line after the first one, those after them of the next.
  std::uint64_t Code(std::uint64_t file, std::uint64_t name, std::int32_t first_line) {
    std::string lines;
    switch (layout_.line_table) {
      case PythonLineTable::kLnotab:
        lines = std::string("\x00\x01\x04\x01", 4);
        break;
      case PythonLineTable::kPep626:
        lines = std::string("\x04\x01\x04\x01", 4);
        break;
      case PythonLineTable::kLocations:
        lines = std::string("\xd9\x01\x02\xd9\x01\x02", 6);
        break;
    }
    const std::uint64_t table = Object(layout_.bytes_data + lines.size());
    Put(table + layout_.bytes_size, std::uint64_t{lines.size()});
    bytes_[table].replace(layout_.bytes_data, lines.size(), lines);
    const std::uint64_t code = Object(512);
    Put(code + layout_.object_type, code_type_);
    Put(code + layout_.code_file, file);
    Put(code + layout_.code_name, name);
    Put(code + layout_.code_first_line, first_line);
    Put(code + layout_.code_lines, table);
    return code;
  }

  // At the instruction with that number.
  std::uint64_t Frame(std::uint64_t code, std::uint64_t previous, int instruction,
                      std::uint8_t owner = 0) {
    const std::uint64_t frame = Object(512);
    Put(frame + layout_.frame_code, code);
    Put(frame + layout_.frame_previous, previous);
    if (layout_.code_start == PythonLayout::kAbsent) {
      const int unit = layout_.line_table == PythonLineTable::kLnotab ? 2 : 1;
      Put(frame + layout_.frame_instruction, std::int32_t{instruction * unit});
    } else {
      Put(frame + layout_.frame_instruction,
          code + layout_.code_start + static_cast<std::uint64_t>(instruction) * 2);
      Put(frame + layout_.frame_owner, owner);
    }
    return frame;
  }

  std::uint64_t Thread(std::uint64_t tid, std::uint64_t frame) {
    const std::uint64_t thread = Object(1024);
    Put(thread + layout_.thread_id, 0x7f0000000000 + tid);
    if (layout_.native_thread_id != PythonLayout::kAbsent) {
      Put(thread + layout_.native_thread_id, tid);
    }
    std::uint64_t holder = thread;
    if (layout_.cframe != PythonLayout::kAbsent) {
      holder = Object(64);
      Put(thread + layout_.cframe, holder);
    }
    Put(holder + layout_.current_frame, frame);
    return thread;
  }

  // With the newest thread first, as Python has them. The address of _PyRuntime.
  std::uint64_t Runtime(const std::vector<std::uint64_t>& threads, std::uint64_t gil_holder) {
    const std::uint64_t runtime = Object(1 << 12);
    const std::uint64_t interpreter = Object(1 << 14);
    Put(runtime + layout_.interpreters_head, interpreter);
    std::uint64_t at = interpreter + layout_.threads_head;
    for (const std::uint64_t thread : threads) {
      Put(at, thread);
      at = thread + layout_.thread_next;
    }
    std::uint64_t gil = runtime;
    if (layout_.gil_pointer != PythonLayout::kAbsent) {
      gil = Object(64);
      Put(interpreter + layout_.gil_pointer, gil);
    }
    Put(gil + layout_.gil_holder, gil_holder);
    Put(gil + layout_.gil_locked, std::int32_t{gil_holder != 0});
    return runtime;
  }

  const PythonLayout& layout() const { return layout_; }

 private:
  PythonLayout layout_;
  std::map<std::uint64_t, std::string> bytes_;
  std::uint64_t next_ = 0x560000000000;
  std::uint64_t code_type_ = 0;
};

}  // namespace ddprun
