// SPDX-License-Identifier: Apache-2.0
// `--profile`: records a window of steps of all ranks in full detail into one file, trace.json. The
// sections of each step come from the step clock, LibTorch's operators (and a GPU's kernels) from
// Kineto, which Python's torch.profiler uses too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ddprun/world.h"
#include "worker/train/metrics/step_clock.h"
#include "worker/train/profile/trace.h"

namespace ddprun {

inline constexpr char kTraceFileName[] = "trace.json";

class Profiler {
 public:
  // Limit for one rank. Perfetto opens more, but nobody reads it; sections are never left out.
  static constexpr std::size_t kOperators = 400'000;

  struct Options {
    std::int64_t first_step = 1;  // counted from 1
    std::int64_t steps = 1;
    std::string file;                                // that rank 0 writes
    std::function<void(const std::string&)> report;  // a sentence for people
  };

  // Both must outlive the profiler.
  Profiler(World& world, StepClock& clock, Options options);
  ~Profiler();  // without writing
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // All ranks call all three at the same steps. At the borders of the window they communicate:
  // at its beginning to align their clocks, at its end to bring all traces to rank 0. Throws
  // c10::Error as any collective does; a file that cannot be written is said and no error.
  void BeginStep(std::int64_t step);
  void EndStep(std::int64_t step);
  void Finish();  // no step follows: ends a window that has not ended

 private:
  void Start(std::int64_t step);
  void Stop();
  RankTrace Collect();

  World& world_;
  StepClock& clock_;
  const Options options_;
  bool recording_ = false;
  bool done_ = false;
  std::int64_t first_ = 0;         // step of the window, in the trainer's count
  std::int64_t steps_before_ = 0;  // it, in the clock's
  std::int64_t origin_ = 0;  // rank 0's steady time that the trace counts from, in nanoseconds
  std::int64_t to_rank_zero_ = 0;    // added to this rank's steady time gives rank 0's
  std::int64_t wall_to_steady_ = 0;  // added to Kineto's time gives this rank's steady time
};

// Each rank's times, by rank. All ranks must call it.
std::vector<SectionTimes> GatherTimes(World& world, const SectionTimes& own);

// Sections as NVTX ranges, which Nsight Systems shows; nothing on a CPU. Without a tool attached a
// range costs a few nanoseconds.
void ShowSectionsInNvtx(const World& world, StepClock& clock);

}  // namespace ddprun
