// SPDX-License-Identifier: Apache-2.0
#include "ddprun/main.h"

#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "ddprun/failure.h"
#include "ddprun/version.h"
#include "proto/progress_message.h"
#include "proto/round_message.h"
#include "proto/version.h"
#include "worker/distributed/device_agreement.h"
#include "worker/library/round_member.h"
#include "worker/memory/keep_freed_memory.h"
#include "worker/progress/flight_record.h"
#include "worker/progress/stall_reporter.h"
#include "worker/rounds/process_state.h"
#include "worker/rounds/round_end.h"

namespace ddprun {
namespace {

using Train = std::function<void(World&)>;

// A process that trains: in one round, or, where its agent keeps it, in one after another.
class Program {
 public:
  Program(const Train& train, MainOptions options)
      : train_(train), options_(std::move(options)), state_(std::make_shared<ProcessState>()) {
    state_->report = [this](const ProgressMessage& message) { member_.progress().Send(message); };
  }

  // The signal that has ended the training; 0: none has.
  int Run();

 private:
  // From joining to leaving.
  void TrainInRound();
  // Rethrows what ends the process.
  void LeaveRound();
  void AwaitRound(const std::exception_ptr& left_by_itself);

  const Train& train_;
  const MainOptions options_;
  const std::shared_ptr<ProcessState> state_;
  RoundMember member_;
  WorkerEnv env_;

  bool note_printed_ = false;

  // Of the round.
  std::unique_ptr<World> world_;
  std::unique_ptr<StallReporter> stalls_;
};

WorkerEnv EnvironmentOfRank() {
  absl::StatusOr<WorkerEnv> env = FromProcessEnviron();
  if (!env.ok()) throw std::invalid_argument(std::string(env.status().message()));
  return *std::move(env);
}

int Program::Run() {
  const bool parked = IsParked();
  env_ = parked ? ParkedEnvironment() : EnvironmentOfRank();
  // On a GPU the host is ahead of the device: what it has queued of a step that will not count has
  // changed the state when the round ends.
  const bool on_cpu = FindCudaDevices(options_.world.backend, options_.world.device).uuids.empty();
  const bool has_rounds = parked || env_.round > 0;
  member_.Listen(env_, has_rounds && options_.keep && on_cpu);
  if (parked) {
    if (member_.listener() == nullptr)
      throw std::runtime_error(
          "a parked worker has no agent that it can hear, or cannot be kept, as on a GPU; leave "
          "--spares out");
    AwaitRound(nullptr);
  }
  while (true) {
    try {
      TrainInRound();
      return state_->stopped_by;
    } catch (...) {
      LeaveRound();
    }
  }
}

void Program::TrainInRound() {
  World::Options options = options_.world;
  options.interrupt = member_.Enter(env_);
  options.process = state_;
  world_ = World::Join(env_, std::move(options));
  if (!std::exchange(note_printed_, true)) PrintDeviceNote(*world_);
  stalls_ = std::make_unique<StallReporter>(
      member_.progress(), [nccl = world_->is_nccl(), begin = std::chrono::system_clock::now()] {
        return PlaceNow(nccl, /*queued=*/{}, begin);
      });
  train_(*world_);
  stalls_->Stop();
  // No rank leaves while another is still waiting for it.
  try {
    world_->Shutdown();
  } catch (const std::exception&) {
    if (state_->stopped_by == 0) throw;
  }
  world_.reset();
}

void Program::LeaveRound() {
  const std::exception_ptr error = std::current_exception();
  if (stalls_) stalls_->Stop();
  stalls_.reset();
  bool by_itself = false;
  if (member_.listener() == nullptr || !EndsRoundOnly(error, *member_.listener(), by_itself)) throw;
  world_.reset();
  AwaitRound(by_itself ? error : nullptr);
}

void Program::AwaitRound(const std::exception_ptr& left_by_itself) {
  std::optional<WorkerEnv> env = member_.AwaitRound(left_by_itself, [] { return false; });
  if (!env) std::rethrow_exception(left_by_itself);
  env_ = *std::move(env);
}

}  // namespace

const char* Version() { return kSoftwareVersion; }

int Main(int argc, char** argv, const Train& train, MainOptions options) {
  const std::string program =
      argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "ddprun";
  if (options.keep_freed_memory) KeepFreedMemory();
  try {
    const int signal = Program(train, std::move(options)).Run();
    return signal == 0 ? kExitSuccess : kExitSignal + signal;
  } catch (...) {
    return ReportFailure(program, std::current_exception());
  }
}

}  // namespace ddprun
