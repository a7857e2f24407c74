// SPDX-License-Identifier: Apache-2.0
#include "worker/train/profile/profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <exception>
#include <set>
#include <stdexcept>
#include <utility>

#include "worker/library/accelerator/accelerator.h"
#include "worker/library/base/host_name.h"
#include "worker/library/files/atomic_file.h"
#include "worker/train/profile/clock_alignment.h"

namespace ddprun {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// Each takes a round trip; the narrowest of them counts.
constexpr int kAlignmentBarriers = 8;

// Where the lines of a rank stand in the trace; a thread's or stream's number is added.
constexpr int kStepsTrack = 0;
constexpr int kThreadTracks = 1000;
constexpr int kDeviceTracks = 100000;
constexpr int kStreamsOfADevice = 10000;

std::int64_t SteadyNow() {
  return std::chrono::nanoseconds(StepClock::Clock::now().time_since_epoch()).count();
}

std::int64_t WallNow() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::set<ActivityType> Activities(const World& world) {
  std::set<ActivityType> activities{ActivityType::CPU};
  if (world.device().is_cuda()) activities.insert(ActivityType::CUDA);
  return activities;
}

void StartKineto(const World& world) {
  setenv("KINETO_LOG_LEVEL", "6", /*overwrite=*/0);  // its notes on each stage are for its makers
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  kineto::prepareProfiler(config, Activities(world));
  kineto::enableProfiler(config, Activities(world));
}

// All ranks' views of the same barriers, by rank.
std::vector<std::vector<BarrierTimes>> MeasureBarriers(World& world) {
  const at::Tensor own = at::empty({kAlignmentBarriers, 2}, at::kLong);
  auto mine = own.accessor<std::int64_t, 2>();
  for (int i = 0; i < kAlignmentBarriers; ++i) {
    mine[i][0] = SteadyNow();
    world.Barrier();
    world.Synchronize();
    mine[i][1] = SteadyNow();
  }
  const at::Tensor all = world.AllGather(own);
  const auto seen = all.accessor<std::int64_t, 3>();
  std::vector<std::vector<BarrierTimes>> ranks(static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    for (int i = 0; i < kAlignmentBarriers; ++i) {
      ranks[static_cast<std::size_t>(rank)].push_back({seen[rank][i][0], seen[rank][i][1]});
    }
  }
  return ranks;
}

// A step from its first batch to its last section, and in it the sections.
void AddSteps(const std::vector<StepClock::Span>& spans, std::int64_t steps_before,
              std::int64_t first_step,
              const std::function<std::int64_t(StepClock::Clock::time_point)>& when,
              std::vector<TraceSlice>& slices) {
  std::size_t open = slices.size();  // the slice of the step that the last span belongs to
  std::int64_t open_step = 0;
  for (const StepClock::Span& span : spans) {
    const std::int64_t start = std::max<std::int64_t>(0, when(span.start));
    const std::int64_t end = when(span.end);
    if (span.section == StepSection::kData && span.step != open_step) {
      open = slices.size();
      open_step = span.step;
      const std::int64_t number = first_step + span.step - 1 - steps_before;
      slices.push_back(
          {.name = "step " + std::to_string(number), .start = start, .track = kStepsTrack});
    }
    if (span.step == open_step) slices[open].duration = end - slices[open].start;
    if (span.section == StepSection::kOther && span.step != open_step)
      continue;  // between two steps
    slices.push_back({.name = ToString(span.section),
                      .start = start,
                      .duration = end - start,
                      .track = kStepsTrack});
  }
}

int TrackOf(const kineto::KinetoEvent& event) {
  if (event.deviceType() != c10::DeviceType::CPU) {
    return kDeviceTracks + std::max(0, event.deviceIndex()) * kStreamsOfADevice +
           static_cast<int>(event.deviceResourceId() % kStreamsOfADevice);
  }
  return kThreadTracks + static_cast<int>(event.startThreadId() % kThreadTracks);
}

std::string TrackName(int track) {
  if (track >= kDeviceTracks) {
    const int of_devices = track - kDeviceTracks;
    return "GPU " + std::to_string(of_devices / kStreamsOfADevice) + " stream " +
           std::to_string(of_devices % kStreamsOfADevice);
  }
  return "thread " + std::to_string(track - kThreadTracks) + " operators";
}

}  // namespace

Profiler::Profiler(World& world, StepClock& clock, Options options)
    : world_(world), clock_(clock), options_(std::move(options)) {}

Profiler::~Profiler() {
  if (!recording_) return;
  try {
    kineto::disableProfiler();
  } catch (const std::exception&) {
    // The training is ending by an error of its own, which is the one to tell.
  }
}

void Profiler::BeginStep(std::int64_t step) {
  // A run that is resumed behind the window's beginning has the rest of it.
  const bool within = step >= options_.first_step && step < options_.first_step + options_.steps;
  if (within && !recording_ && !done_) Start(step);
}

void Profiler::EndStep(std::int64_t step) {
  if (recording_ && step + 1 >= options_.first_step + options_.steps) Stop();
}

void Profiler::Finish() {
  if (recording_) {
    Stop();
  } else if (!done_ && world_.rank() == 0) {
    options_.report("there is no profile: the training ended before its step " +
                    std::to_string(options_.first_step) + "; take a lower --profile-first-step");
  }
}

void Profiler::Start(std::int64_t step) {
  world_.Synchronize();  // what the device is behind is of steps before
  recording_ = true;
  first_ = step;
  steps_before_ = clock_.totals().steps;
  StartKineto(world_);  // takes a while the first time, so before the clocks are compared
  const auto barriers = MeasureBarriers(world_);
  origin_ = barriers[0].front().entered;
  to_rank_zero_ =
      OffsetToRankZero(barriers[0], barriers[static_cast<std::size_t>(world_.rank())]).nanoseconds;
  if (world_.rank() == 0) to_rank_zero_ = 0;
  wall_to_steady_ = SteadyNow() - WallNow();
  clock_.RecordSpans();
}

void Profiler::Stop() {
  world_.Synchronize();  // the device is behind: its part of the last steps would be missing
  recording_ = false;
  done_ = true;
  const std::vector<std::string> pieces = world_.GatherTexts(TraceEvents(Collect()));
  if (world_.rank() != 0) return;
  try {
    const std::string text = TraceFile(pieces);
    WriteFile(options_.file, text);
    options_.report("profile of " + std::to_string(clock_.totals().steps - steps_before_) +
                    " steps: open " + options_.file + " in https://ui.perfetto.dev");
  } catch (const std::runtime_error& error) {
    options_.report(std::string("the profile is lost, training goes on: ") + error.what());
  }
}

RankTrace Profiler::Collect() {
  RankTrace trace{.rank = world_.rank(), .host = HostName(), .tracks = {{kStepsTrack, "steps"}}};
  const std::int64_t to_trace = to_rank_zero_ - origin_;
  const auto when = [&](StepClock::Clock::time_point time) {
    return std::chrono::nanoseconds(time.time_since_epoch()).count() + to_trace;
  };
  const auto spans = clock_.TakeSpans();
  AddSteps(spans, steps_before_, first_, when, trace.slices);
  const auto result = kineto::disableProfiler();
  std::size_t operators = 0;
  for (const kineto::KinetoEvent& event : result->events()) {
    const std::int64_t start =
        static_cast<std::int64_t>(event.startNs()) + wall_to_steady_ + to_trace;
    // Aligning the clocks was recorded too.
    if (spans.empty() || start < when(spans.front().end)) continue;
    if (++operators > kOperators) break;
    trace.slices.push_back({.name = event.name(),
                            .start = start,
                            .duration = static_cast<std::int64_t>(event.durationNs()),
                            .track = TrackOf(event),
                            .overlaps = event.isAsync()});
  }
  if (operators > kOperators && world_.rank() == 0) {
    options_.report("the profile is cut after " + std::to_string(kOperators) +
                    " operators of a rank; take a lower --profile-steps");
  }
  MarkOverlaps(trace.slices);
  // Overlapping slices are shown on lines of their own, not on their track.
  std::set<int> tracks;
  for (const TraceSlice& slice : trace.slices) {
    if (!slice.overlaps && slice.track != kStepsTrack) tracks.insert(slice.track);
  }
  for (const int track : tracks) trace.tracks.push_back({track, TrackName(track)});
  return trace;
}

std::vector<SectionTimes> GatherTimes(World& world, const SectionTimes& own) {
  std::vector<std::int64_t> row{own.steps};
  for (const auto time : own.times) row.push_back(time.count());
  const at::Tensor all = world.AllGather(at::tensor(row, at::kLong));
  const auto rows = all.accessor<std::int64_t, 2>();
  std::vector<SectionTimes> ranks(static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    SectionTimes& times = ranks[static_cast<std::size_t>(rank)];
    times.steps = rows[rank][0];
    for (std::size_t i = 0; i < kSections; ++i)
      times.times[i] = std::chrono::nanoseconds(rows[rank][static_cast<std::int64_t>(i) + 1]);
  }
  return ranks;
}

void ShowSectionsInNvtx(const World& world, StepClock& clock) {
  if (!world.device().is_cuda()) return;
  Accelerator& accelerator = LoadAccelerator();
  // Sections are entered on the trainer's thread and on autograd's.
  clock.OnEnter([&accelerator, range = accelerator.BeginRange(ToString(StepSection::kOther))](
                    StepSection section) mutable {
    accelerator.EndRange(range);
    range = accelerator.BeginRange(ToString(section));
  });
}

}  // namespace ddprun
