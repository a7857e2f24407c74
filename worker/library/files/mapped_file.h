// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace ddprun {

// The bytes of a file, mapped: uint8. All processes that map the same file share its pages, except
// those that they write to, which are their own and never reach the file. The file must not be made
// shorter while it is used: the system would end the program with SIGBUS. Throws
// std::runtime_error: the reason alone, as the end of a sentence.
at::Tensor MapFile(const std::string& path);

}  // namespace ddprun
