// SPDX-License-Identifier: Apache-2.0
// The frames of Python's threads, out of another process's memory. Pure but for the reading, which
// the caller does. That memory is not trusted: it may change while it is read, or be damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "launcher/hang/python_layout.h"

namespace ddprun {

// Fills all of `size` bytes from `address`, or returns false.
using ReadMemory = absl::FunctionRef<bool(std::uint64_t address, void* to, std::size_t size)>;

struct PythonFrame {
  std::string function;
  std::string file;
  std::int64_t line = 0;  // 0: not known
};

struct PythonThread {
  std::uint64_t handle = 0;  // its pthread_self()
  std::int64_t tid = 0;      // of the kernel; 0: not known (3.9 and 3.10)
  bool holds_gil = false;
  std::vector<PythonFrame> frames;  // the most recent call first
  bool is_whole = false;            // otherwise there are more
};

struct PythonThreads {
  std::vector<PythonThread> threads;  // the oldest first; of a program it is the main thread
  std::size_t more = 0;               // that are not among them
};

// `runtime` is the address of _PyRuntime.
PythonThreads ReadPythonThreads(ReadMemory read, std::uint64_t runtime, const PythonLayout& layout);

// "forward at /src/model.py:12"; on one line, whatever the names are.
std::string ToText(const PythonFrame& frame);

}  // namespace ddprun
