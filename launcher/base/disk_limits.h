// SPDX-License-Identifier: Apache-2.0
// How long ddprun waits for a disk that does not answer, where it can continue without it.
#pragma once

#include <chrono>
#include <cstddef>

namespace ddprun {

// A worker's failure record and core file: its end is reported without them then.
inline constexpr std::chrono::milliseconds kDiskAnswerTimeout{1000};
// Whether workers have left failure records, before they are signalled; the loop waits for the
// answer. The files are in the run's own folder.
inline constexpr std::chrono::milliseconds kRecordLookTimeout{200};
// A note is printed if the workers are not started by then because the disk of their program hangs.
inline constexpr std::chrono::seconds kSpawnNoticeDelay{10};
// The verdict as a file, when the run is over.
inline constexpr std::chrono::seconds kVerdictFileTimeout{3};
// The last sentences of all, where stderr is a file.
inline constexpr std::chrono::milliseconds kConsoleNoticeTimeout{500};
// Of a worker's failure record; of a longer one the rest is not kept beside the log files.
inline constexpr std::size_t kRecordBytesMax = 1u << 20;

}  // namespace ddprun
