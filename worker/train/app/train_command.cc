// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddprun/detail/interrupt.h"
#include "ddprun/detail/world_access.h"
#include "ddprun/world.h"
#include "proto/round_message.h"
#include "rendezvous/base/signal_name.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/library/checkpoint/folder_lock.h"
#include "worker/library/checkpoint/resume.h"
#include "worker/library/checkpoint/stop_signal.h"
#include "worker/library/core/round_member.h"
#include "worker/library/distributed/device_agreement.h"
#include "worker/library/progress/flight_record.h"
#include "worker/library/progress/stall_reporter.h"
#include "worker/library/rounds/process_state.h"
#include "worker/library/rounds/round_end.h"
#include "worker/library/rounds/round_listener.h"
#include "worker/train/app/beside_train.h"
#include "worker/train/app/command_line.h"
#include "worker/train/app/commands.h"
#include "worker/train/app/launch.h"
#include "worker/train/app/setup.h"
#include "worker/train/data/dataset.h"
#include "worker/train/metrics/console.h"
#include "worker/train/training/kept_training.h"
#include "worker/train/training/results.h"
#include "worker/train/training/trainer.h"

namespace ddprun {
namespace {

using FolderLocks = std::vector<std::unique_ptr<FolderLock>>;

// Creates the folders that rank 0 writes to, and locks them against other trainings.
FolderLocks TakeFolders(const Config& config, const WorkerEnv& env) {
  PrepareFolder("--output-dir", config.output_dir);
  PrepareResults(config.output_dir, ModelFileName(config));
  std::vector<std::string> folders = {config.output_dir};
  if (SavesCheckpoints(config)) {
    PrepareFolder("--checkpoint-dir", CheckpointFolder(config));
    std::error_code error;
    if (!std::filesystem::equivalent(config.output_dir, CheckpointFolder(config), error))
      folders.push_back(CheckpointFolder(config));
  }
  FolderLocks locks;
  for (const std::string& folder : folders) {
    locks.push_back(std::make_unique<FolderLock>(
        folder, FolderLock::Options{.run = env.run_id, .restarted = Restarted(env)},
        [](const std::string& line) { std::fprintf(stderr, "train: %s\n", line.c_str()); }));
  }
  return locks;
}

// Whether this process can go on in another round: there must be rounds, and its step must be
// undone without a trace, which a pipeline's half cannot be.
bool CanBeKept(const Config& config, const WorkerEnv& env) {
  const bool has_rounds = env.round > 0 || IsParked();
  return has_rounds && config.pipeline == 1 && !config.profile;
}

// A parked worker may take the place of any local rank, and making a context takes a while.
void MakeDeviceContexts(const Config& config) {
  const CudaDevices devices = FindCudaDevices(config.backend, config.device);
  for (std::size_t device = 0; device < devices.uuids.size(); ++device)
    LoadAccelerator().Synchronize(static_cast<int>(device));
}

// What exists as long as this rank is in a round.
struct Round {
  explicit Round(const WorkerEnv& env) : console(ConsoleOptions(env)) {}

  Console console;
  GraphSteps graph_steps;
  std::unique_ptr<World> world;
  std::unique_ptr<StallReporter> stalls;
  std::unique_ptr<Trainer> trainer;
};

// A process that trains: in one round, or, where its agent keeps it, in one after another.
class TrainingProcess {
 public:
  TrainingProcess(const Config& config, const CommandContext& context)
      : config_(config), context_(context), kept_(context.program_start) {
    state_->report = [this](const ProgressMessage& message) { member_.progress().Send(message); };
  }

  void Run();

 private:
  void Prepare();
  void OpenData();
  void Listen();
  void TrainInRound();
  void MakeTrainer();
  void EndRun(const std::optional<Stopped>& stopped);
  // After the other ranks were let go.
  void ShowPicture();
  // The round is over. Rethrows what ends the process.
  void LeaveRound();
  // Ends the process where it cannot be unwound: what is destroyed would wait for a device that
  // hangs.
  void EndAtOnceOnGpu(const std::exception_ptr& error);
  void AwaitAborted();
  void AwaitRound(const std::exception_ptr& left_by_itself);
  // Throws Stopped.
  [[noreturn]] void StopOutsideRound(int signal);

  const Config& config_;
  const CommandContext& context_;
  WorkerEnv env_;
  RoundMember member_;
  const std::shared_ptr<ProcessState> state_ = std::make_shared<ProcessState>();
  FolderLocks locks_;  // of rank 0
  std::optional<Dataset> data_;
  std::optional<StopSignal> signals_;
  KeptTraining kept_;
  std::optional<Round> round_;
};

void TrainingProcess::Run() {
  const bool parked = IsParked();
  env_ = parked ? ParkedEnvironment() : Launch(config_, context_.arguments);
  Prepare();
  if (parked) {
    OpenData();
    MakeDeviceContexts(config_);
    Listen();
    if (member_.listener() == nullptr)
      throw std::runtime_error(
          "a parked worker has no agent that it can hear; " + std::string(kParkedVariable) +
          " is for the workers of ddprun, with settings with which they can be kept");
    AwaitRound(nullptr);
  } else {
    Listen();
  }
  while (true) {
    try {
      TrainInRound();
      return;
    } catch (...) {
      LeaveRound();
    }
  }
}

void TrainingProcess::Prepare() {
  PrepareRank(config_, env_);
  ChooseKernels(config_);
}

void TrainingProcess::OpenData() {
  if (!data_) data_ = OpenDataset(config_);
}

void TrainingProcess::Listen() { member_.Listen(env_, CanBeKept(config_, env_)); }

void TrainingProcess::TrainInRound() {
  round_.emplace(env_);
  kept_.another_world = !env_.one_round;
  World::Options options = WorldOptions(config_);
  options.step_graphs = config_.cuda_graph;
  options.interrupt = member_.Enter(env_);
  options.process = state_;
  // Before joining: a rank whose files are missing fails at once, and the others do not wait for
  // it.
  if (env_.rank != 0) locks_.clear();
  if (env_.rank == 0 && locks_.empty()) locks_ = TakeFolders(config_, env_);
  OpenData();
  options.facts = FactsOf(config_, *data_);
  round_->world = World::Join(env_, options);
  // With NCCL the communicator is created in the background from here on, while the model is made.
  const bool nccl = round_->world->is_nccl();
  // Up to here a signal ends this rank at once, because there is nothing to save. From here on it
  // is recorded, until all ranks are done.
  if (SavesCheckpoints(config_) && !signals_) signals_.emplace();
  round_->stalls = std::make_unique<StallReporter>(
      member_.progress(),
      [nccl, &graph_steps = round_->graph_steps, begin = std::chrono::system_clock::now()] {
        return PlaceNow(nccl, graph_steps.Place(), begin);
      });
  MakeTrainer();
  std::optional<Stopped> stopped;
  try {
    round_->trainer->Run();
  } catch (const Stopped& by_signal) {
    stopped = by_signal;
  }
  EndRun(stopped);
}

void TrainingProcess::MakeTrainer() {
  round_->trainer = std::make_unique<Trainer>(config_, *data_, *round_->world, round_->console,
                                              round_->graph_steps, kept_);
}

void TrainingProcess::EndRun(const std::optional<Stopped>& stopped) {
  // Destroying the trainer aborts its collectives, which would look completed to the reporter.
  round_->stalls->Stop();
  const TrainingPlace place = round_->trainer->PlaceAtEnd();
  // NCCL's communicators cannot be ended before CUDA graphs that use them.
  round_->trainer.reset();
  kept_.Leave(place, round_->graph_steps.ended());
  // No rank leaves while another is still waiting for it.
  try {
    round_->world->Shutdown();
  } catch (const std::exception&) {
    if (!stopped) throw;
  }
  if (stopped) throw Stopped(*stopped);
  ShowPicture();
}

void TrainingProcess::ShowPicture() {
  if (env_.rank != 0 || !config_.metrics || !kept_.summary.evaluation) return;
  const std::string picture = DrawSummary(config_.output_dir);
  round_->console.Line(picture.empty() ? "no picture was drawn; see train plot " +
                                             config_.output_dir + " --output FILE.png"
                                       : "curves and confusion matrix: " + picture);
}

void TrainingProcess::LeaveRound() {
  const std::exception_ptr error = std::current_exception();
  if (round_->stalls) round_->stalls->Stop();
  bool by_itself = false;
  if (member_.listener() == nullptr || !EndsRoundOnly(error, *member_.listener(), by_itself)) {
    EndAtOnceOnGpu(error);
    throw;
  }
  if (round_->world) AwaitAborted();
  if (round_->trainer) {
    const TrainingPlace place = round_->trainer->PlaceAtEnd();
    round_->trainer.reset();
    kept_.Leave(place, round_->graph_steps.ended());
  } else {
    kept_.Leave(kept_.place, 0);
  }
  round_.reset();
  AwaitRound(by_itself ? error : nullptr);
}

void TrainingProcess::AwaitAborted() {
  try {
    WorldAccess::AwaitAborted(*round_->world);
  } catch (const std::exception&) {
    EndAtOnceOnGpu(std::current_exception());
    throw;
  }
}

void TrainingProcess::EndAtOnceOnGpu(const std::exception_ptr& error) {
  if (!round_->trainer || !round_->world->device().is_cuda()) return;
  round_->trainer->AwaitSave();
  context_.end_at_once(error);
}

void TrainingProcess::AwaitRound(const std::exception_ptr& left_by_itself) {
  std::optional<WorkerEnv> env = member_.AwaitRound(
      left_by_itself, [this] { return signals_ && StopSignal::Received() != 0; });
  if (env) {
    env_ = *std::move(env);
    return;
  }
  if (const int signal = signals_ ? StopSignal::Received() : 0; signal != 0)
    StopOutsideRound(signal);
  std::rethrow_exception(left_by_itself);
}

// All ranks may have been told to end while their round ended, and no other one follows: rank 0,
// which has the whole state, saves it in a world of its own.
void TrainingProcess::StopOutsideRound(int signal) {
  if (env_.rank == 0 && kept_.has_state && SavesCheckpoints(config_)) {
    WorkerEnv alone = env_;
    alone.world_size = alone.local_world_size = alone.group_world_size = 1;
    alone.agent_socket.clear();
    round_.emplace(alone);
    round_->world = World::Join(alone, WorldOptions(config_));
    MakeTrainer();
    round_->trainer->Stop(signal);
  }
  throw Stopped(signal, "rank " + std::to_string(env_.rank) + ": ended by " + SignalName(signal) +
                            " while it waited for a new round");
}

}  // namespace

void RunTrain(const CommandContext& context) {
  const Config config = ParseCommandLine(context.arguments);
  TrainingProcess(config, context).Run();
}

}  // namespace ddprun
