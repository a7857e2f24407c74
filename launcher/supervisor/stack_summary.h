// SPDX-License-Identifier: Apache-2.0
// What a person looks at first in the stacks of a process: a process with LibTorch has 20 threads,
// of which most wait for work. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddprun {

struct StackSummary {
  std::vector<std::string> lines;
  std::size_t left_out = 0;  // lines of the whole
};

// Sums up the lines that ddprun-stacks prints for one process: the threads of Python, the process's
// first thread, then the others, with the innermost kStackFramesShown frames of each. `lines_max`
// is at least 1. The middle of a line of more than kStackLineShown bytes is left out.
StackSummary SummaryOf(const std::vector<std::string>& stack, std::size_t lines_max);

}  // namespace ddprun
