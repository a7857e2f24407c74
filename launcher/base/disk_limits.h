// SPDX-License-Identifier: Apache-2.0
// How long ddprun waits for a disk that does not answer, where it can go on without.
#pragma once

#include <chrono>
#include <cstddef>

namespace ddprun {

// The agent's loop, for a question whose answer it can do without (where a core file is). Nor does
// it wait longer than a heartbeat, so that the node does not lose its lease meanwhile; the same
// holds for kLogOpenTimeout.
inline constexpr std::chrono::milliseconds kDiskAnswerTimeout{200};
// The verdict as a file, when the run is over.
inline constexpr std::chrono::seconds kVerdictFileTimeout{3};
// The last sentences of all, where stderr is a file.
inline constexpr std::chrono::milliseconds kConsoleNoticeTimeout{500};
// Of a worker's failure record; of a longer one the rest is not kept beside the log files.
inline constexpr std::size_t kRecordBytesMax = 1u << 20;

}  // namespace ddprun
