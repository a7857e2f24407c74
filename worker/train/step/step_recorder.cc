// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/step_recorder.h"

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "worker/library/base/background_task.h"
#include "worker/library/base/first_line.h"

namespace ddprun {
namespace {

// A capture that fails leaves LibTorch's allocator in the belief that it goes on for ever, where a
// stream of NCCL's was not joined: this process cannot go on in another round.
[[noreturn]] void ThrowInterrupted() {
  throw OwnError(
      "the round ended while the step was captured as a CUDA graph, after which this process "
      "cannot use the GPU any more; it ends, and its place is taken by another one");
}

}  // namespace

class StepRecorder::Graphs {
 public:
  // Throws RoundOver if they were taken away.
  StepGraph* Add(std::unique_ptr<StepGraph> graph) {
    const std::lock_guard lock(mutex_);
    if (gone_) throw RoundOver();
    return graphs_.emplace_back(std::move(graph)).get();
  }
  void Replay(StepGraph& graph) {
    const std::lock_guard lock(mutex_);
    if (gone_) throw RoundOver();
    graph.Replay();
  }
  // Destroys them all, which may wait until the device has left them.
  void TakeAway(at::Device device) {
    if (device.is_cuda()) LoadAccelerator().SetDevice(device.index());
    std::vector<std::unique_ptr<StepGraph>> graphs;
    const std::lock_guard lock(mutex_);
    gone_ = true;
    graphs.swap(graphs_);
  }

 private:
  std::mutex mutex_;
  bool gone_ = false;
  std::vector<std::unique_ptr<StepGraph>> graphs_;
};

StepRecorder::StepRecorder(World& world, MakeStepGraph make_graph,
                           std::optional<RunAheadLimit> limit)
    : world_(world),
      make_graph_(std::move(make_graph)),
      graphs_(std::make_shared<Graphs>()),
      limit_(std::move(limit)),
      forward_(recordings_.try_emplace(0).first) {
  if (!make_graph_ || !world_.interrupt()) return;
  losing_graphs_ = world_.interrupt()->Register([graphs = graphs_, device = world_.device()] {
    std::thread([graphs, device] { graphs->TakeAway(device); }).detach();
  });
}

void StepRecorder::UseForward(std::int64_t forward) {
  forward_ = recordings_.try_emplace(forward).first;
}

bool StepRecorder::IsReplayed() const {
  if (!make_graph_) return false;
  const Recording& recording = forward_->second;
  const bool settled = queued_ >= (world_.size() == 1 ? kWarmUpAlone : kWarmUpOfSeveral) &&
                       recording.queued >= kWarmUpAgain;
  return recording.graph != nullptr || settled;
}

void StepRecorder::Record(const std::function<StepOutcome()>& step) {
  world_.Synchronize();
  Recording& recording = forward_->second;
  std::unique_ptr<StepGraph> graph = make_graph_();
  try {
    graph->Capture([&recording, step] { recording.outcome = step(); });
  } catch (const RoundOver&) {
    ThrowInterrupted();
  } catch (const c10::Error& error) {
    if (world_.interrupt() && world_.interrupt()->triggered()) ThrowInterrupted();
    throw OwnError("the step cannot be captured as a CUDA graph: " + FirstLine(error) +
                   "; pass --no-cuda-graph");
  }
  recording.graph = graphs_->Add(std::move(graph));
}

StepOutcome StepRecorder::Replay() {
  graphs_->Replay(*forward_->second.graph);
  return forward_->second.outcome;
}

void StepRecorder::CountQueued() {
  ++forward_->second.queued;
  ++queued_;
}

std::chrono::milliseconds StepRecorder::Limit() const {
  return dummy_ ? world_.timeout() : world_.step_timeout();
}

void StepRecorder::EndStep(std::int64_t number) try {
  dummy_ = number == kDummy;
  if (limit_) limit_->EndStep(number, Limit());
} catch (const StepHangs&) {
  Abort();
  throw;
}

void StepRecorder::AwaitQueued() try {
  if (limit_) limit_->AwaitAll(Limit());
} catch (const StepHangs&) {
  Abort();
  throw;
}

bool StepRecorder::is_warm() const {
  const Recording& recording = forward_->second;
  return make_graph_ ? recording.graph != nullptr : recording.queued > 0;
}

// ncclCommAbort() returns only when no graph is left that holds the communicator's collectives
// (NCCL 2.28 src/init.cc, commDestroySync(), which waits for localPersistentRefs). The graphs are
// destroyed when the device has left them, which the abort makes it do. All that may block, so it
// is done by a thread that owns what it needs, and that is waited for for a short time only.
void StepRecorder::Abort() {
  // Where there is an interrupt, leaving the round triggers it, and that aborts.
  if (world_.interrupt()) return;
  BackgroundTask aborting("the end of the collectives", kAbortLimit,
                          [graphs = graphs_, device = world_.device(), group = world_.group()] {
                            graphs->TakeAway(device);
                            group->getDefaultBackend()->abort();
                          });
  try {
    aborting.Wait();
  } catch (const std::exception&) {
    // The process ends without it.
  }
}

}  // namespace ddprun
