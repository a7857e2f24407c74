// SPDX-License-Identifier: Apache-2.0
#include "worker/parallel/local_pipeline.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <thread>

#include "worker/distributed/accelerator.h"
#include "worker/parallel/stage_functions.h"

namespace ddprun {

// Runs one piece of work after the other. LibTorch and OpenMP keep much for each thread, so a stage
// keeps its own.
class StageThread {
 public:
  StageThread(at::Device device, int operator_threads)
      : thread_([this, device, operator_threads] { Loop(device, operator_threads); }) {}
  ~StageThread() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  StageThread(const StageThread&) = delete;
  StageThread& operator=(const StageThread&) = delete;

  // One at a time: the one before must have ended.
  std::future<at::Tensor> Start(std::function<at::Tensor()> work) {
    std::packaged_task<at::Tensor()> task(std::move(work));
    std::future<at::Tensor> result = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      task_ = std::move(task);
    }
    changed_.notify_all();
    return result;
  }

 private:
  void Loop(at::Device device, int operator_threads) {
    at::set_num_threads(operator_threads);
    if (device.is_cuda()) LoadAccelerator().SetDevice(device.index());
    for (;;) {
      std::packaged_task<at::Tensor()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return task_.valid() || stopping_; });
        if (!task_.valid()) return;
        task = std::move(task_);
      }
      task();
    }
  }

  std::mutex mutex_;  // for the two below
  std::packaged_task<at::Tensor()> task_;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread thread_;  // last, so that it starts when everything else is there
};

namespace {

std::string NameOf(std::size_t stage) { return "stage " + std::to_string(stage); }

}  // namespace

LocalPipeline::LocalPipeline(ImageModel& model, const PipelinePlan& plan,
                             const std::vector<std::size_t>& cuts,
                             const std::vector<at::Device>& devices,
                             std::chrono::milliseconds timeout, StepOptions options)
    : model_(model),
      options_(std::move(options)),
      last_device_(devices.back()),
      threads_before_(at::get_num_threads()) {
  const int operator_threads = std::max(1, threads_before_ / plan.stages);
  const auto modules = CutIntoStages(model, cuts);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    modules[i]->to(devices[i]);
    places_.push_back({.module = modules[i]});
  }
  MakeLinks(devices, timeout);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    Stage::Options stage{.index = static_cast<int>(i),
                         .stages = plan.stages,
                         .schedule = plan.schedule,
                         .micro_batches = plan.micro_batches,
                         .forward = StageForward(*place.module, devices[i], options_),
                         .loss = StageLoss(devices[i], options_)};
    // The others run in threads that whoever listens does not know.
    if (i == 0)
      stage.enter = [this](Stage::Activity activity) { options_.enter(SectionOf(activity)); };
    place.stage = std::make_unique<Stage>(std::move(stage), place.previous.get(), place.next.get());
    if (i > 0) place.thread = std::make_unique<StageThread>(devices[i], operator_threads);
  }
  at::set_num_threads(operator_threads);
}

LocalPipeline::~LocalPipeline() { at::set_num_threads(threads_before_); }

void LocalPipeline::MakeLinks(const std::vector<at::Device>& devices,
                              std::chrono::milliseconds timeout) {
  for (std::size_t i = 0; i + 1 < places_.size(); ++i) {
    const auto forward = std::make_shared<ThreadChannel>();
    const auto backward = std::make_shared<ThreadChannel>();
    places_[i].next = std::make_unique<ThreadLink>(
        forward, backward,
        ThreadLink::Options{.device = devices[i], .peer_name = NameOf(i + 1), .timeout = timeout});
    places_[i + 1].previous = std::make_unique<ThreadLink>(
        backward, forward,
        ThreadLink::Options{.device = devices[i + 1], .peer_name = NameOf(i), .timeout = timeout});
  }
}

NamedTensors LocalPipeline::Parameters() const {
  NamedTensors parameters;
  for (const Place& place : places_) {
    for (const auto& entry : place.module->own_parameters()) parameters.push_back(entry);
  }
  return parameters;
}

std::vector<at::Tensor> LocalPipeline::State() const { return StateOf(model_); }

at::Tensor LocalPipeline::InAllStages(const std::function<at::Tensor(Stage&)>& work) {
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto guarded = [&](Place& place) {
    try {
      return work(*place.stage);
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
      }
      // The neighbours need not wait for this one.
      if (place.previous) place.previous->Close();
      if (place.next) place.next->Close();
      return at::Tensor();
    }
  };
  std::vector<std::future<at::Tensor>> results;
  for (Place& place : places_) {
    if (place.thread) results.push_back(place.thread->Start([&] { return guarded(place); }));
  }
  at::Tensor answer = guarded(places_.front());
  // Each ends, as whatever a stage waits for has a deadline.
  for (auto& result : results) answer = result.get();
  if (first_error) std::rethrow_exception(first_error);
  return answer;
}

at::Tensor LocalPipeline::Run(const Batch& batch, bool first, bool) {
  if (first) {
    for (const auto& entry : Parameters()) entry.second.mutable_grad().reset();
  }
  const at::Tensor labels = batch.labels.to(last_device_);
  const at::Tensor scale = batch.scale.defined() ? batch.scale.to(last_device_) : at::Tensor();
  const at::Tensor loss = InAllStages([&](Stage& stage) {
    return stage.Train({.samples = batch.labels.size(0),
                        .images = batch.images,
                        .labels = labels,
                        .factor = batch.weight,
                        .scale = scale});
  });
  return loss.to(batch.images.device());
}

at::Tensor LocalPipeline::Scores(const at::Tensor& images) {
  return InAllStages([&](Stage& stage) { return stage.Scores(images.size(0), images); })
      .to(images.device());
}

}  // namespace ddprun
