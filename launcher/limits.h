// SPDX-License-Identifier: Apache-2.0
// Every limit and waiting time of the launcher room, in one place, with the reason for its size.
#pragma once

#include <chrono>
#include <cstddef>

namespace ddprun {

// A longer line is shown in pieces: a worker that never ends its line must not fill the agent's
// memory.
inline constexpr std::size_t kLineBytesMax = 64u << 10;
// What waits for a slow console. Beyond it the workers' pipes are not read, so that nothing is
// lost.
inline constexpr std::size_t kConsoleBufferBytesMax = 4u << 20;
// A console that takes nothing for this long (a paused pager, Ctrl-S) no longer holds the workers
// up.
inline constexpr std::chrono::seconds kConsoleStallTimeout{5};
// How long the end of a run waits for the console to take the last lines.
inline constexpr std::chrono::seconds kConsoleFlushTimeout{2};
// Read from one pipe at a time, so that one talkative worker does not starve the loop.
inline constexpr std::size_t kPipeReadBytes = 64u << 10;
// Read from a dead worker's pipe: more than any pipe holds, and an end where a grandchild still
// writes.
inline constexpr std::size_t kPipeDrainBytesMax = 2u << 20;

inline constexpr std::chrono::seconds kTermTimeoutDefault{10};
// What SIGKILL does not end in this time hangs in the kernel.
inline constexpr std::chrono::seconds kKillTimeout{10};
// A person who waits this long wants to know for what; a quick start stays silent.
inline constexpr std::chrono::seconds kNoticeDelay{1};
// Between telling the service that this node goes and its verdict.
inline constexpr std::chrono::seconds kLeaveTimeout{2};
// `timeout` and job schedulers send one signal twice, to the process and to its group: an echo is
// not impatience.
inline constexpr std::chrono::milliseconds kSignalEchoTime{500};
// Between two attempts to resolve the master's name.
inline constexpr std::chrono::milliseconds kResolveRetryInterval{500};
// How long a warden whose agent was killed tries to tell the service, before it ends.
inline constexpr std::chrono::seconds kLossReportTimeout{3};
// A record of the kernel's log (the kernel's own limit), and how many are looked at when a worker
// was killed: a log that is flooded must not hold the agent up.
inline constexpr std::size_t kKernelLogRecordBytes = 8192;
inline constexpr int kKernelLogRecordsMax = 10'000;
// Of a traceback and of several lines that a worker said, on the screen; JSON has all.
inline constexpr std::size_t kShownLinesMax = 24;
// For killing and reaping what workers left behind.
inline constexpr std::chrono::seconds kSweepTimeout{5};

// Of `ddprun status`, as a probe would have it.
inline constexpr std::chrono::seconds kStatusTimeoutDefault{5};

inline constexpr int kPortDefault = 29500;          // torchrun's --master-port
inline constexpr int kEndpointPortDefault = 29400;  // torchrun's c10d --rdzv-endpoint

}  // namespace ddprun
