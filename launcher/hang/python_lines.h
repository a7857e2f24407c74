// SPDX-License-Identifier: Apache-2.0
// The line of an instruction in a Python code object. Pure; a damaged table gives a wrong line or
// none.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "launcher/hang/python_layout.h"

namespace ddprun {

// `instruction` is in bytes from the start of the code, below 0 before its first instruction.
// Absent: the instruction belongs to no line.
std::optional<std::int64_t> PythonLineOf(PythonLineTable kind, absl::string_view table,
                                         std::int64_t first_line, std::int64_t instruction);

}  // namespace ddprun
