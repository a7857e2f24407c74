// SPDX-License-Identifier: Apache-2.0
#include "ddprun/main.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "ddprun/detail/interrupt.h"
#include "ddprun/version.h"
#include "proto/progress_message.h"
#include "proto/round_message.h"
#include "proto/version.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/divergence.h"
#include "worker/library/base/keep_freed_memory.h"
#include "worker/library/checkpoint/stop_signal.h"
#include "worker/library/core/round_member.h"
#include "worker/library/distributed/device_agreement.h"
#include "worker/library/progress/flight_record.h"
#include "worker/library/progress/stall_reporter.h"
#include "worker/library/rounds/process_state.h"
#include "worker/library/rounds/round_end.h"

namespace ddprun {
namespace {

using TrainFunction = std::function<void(World&)>;

// In the world's store: a rank that has left the function of Main(), and its last collective.
constexpr const char* kLeftKey = "ddprun/left";

// The recorder knows a moment later of a collective that it is done.
constexpr int kRetireLooks = 5;
constexpr std::chrono::milliseconds kRetireInterval{10};

// The number of the world's collective that it is in or, if it is in none, was in last; 0: none.
std::int64_t NumberOf(const CollectivePlace& place) {
  if (place.waits && place.waits->group == kWorldGroup) return place.waits->number;
  const Collective* last = LastIn(kWorldGroup, place);
  return last != nullptr ? last->number : 0;
}

// Set while Main()'s function runs, for std::exit() in it.
std::function<void()> at_exit;  // NOLINT(cert-err58-cpp): does not throw

void CallAtExit() {
  if (at_exit) at_exit();
}

// A process that trains: in one round, or, where its agent keeps it, in one after another.
class Program {
 public:
  Program(std::string name, const TrainFunction& train, MainOptions options)
      : name_(std::move(name)),
        train_(train),
        options_(std::move(options)),
        state_(std::make_shared<ProcessState>()) {
    state_->report = [this](const ProgressMessage& message) { member_.progress().Send(message); };
  }

  // The signal that has ended the training; 0: none has.
  int Run();

 private:
  // From joining to leaving.
  void TrainInRound();
  // Calls the program's function.
  void Train();
  CollectivePlace Place() const;
  // Tells the agent where this rank is, which goes no further.
  void ReportPlace(const CollectivePlace& place);
  // This rank calls no collective any more, and others may wait for it in vain: tells the agent.
  void ReportLastPlace();
  // And the others.
  void TellLeaving();
  // Ends this process if it waits in a collective that a rank which has left did not call.
  void CheckLeft(const CollectivePlace& place);
  // Tells the agent which collective has failed with `error`; absent: it was none.
  std::optional<CollectivePlace> ReportFailedPlace(const std::exception_ptr& error);
  // Rethrows what ends the process.
  void LeaveRound();
  void AwaitRound(const std::exception_ptr& left_by_itself);

  const std::string name_;
  const TrainFunction& train_;
  const MainOptions options_;
  const std::shared_ptr<ProcessState> state_;
  RoundMember member_;
  WorkerEnv env_;

  bool note_printed_ = false;

  // State of the round.
  std::unique_ptr<World> world_;
  std::chrono::system_clock::time_point joined_;
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
  joined_ = std::chrono::system_clock::now();
  stalls_ = std::make_unique<StallReporter>(member_.progress(), [this] {
    CollectivePlace place = Place();
    CheckLeft(place);
    return place;
  });
  at_exit = [this] { ReportLastPlace(); };
  Train();
  at_exit = nullptr;
  stalls_->Stop();
  TellLeaving();
  // No rank leaves while another is still waiting for it.
  try {
    world_->Shutdown();
  } catch (const std::exception&) {
    if (state_->stopped_by == 0) throw;
  }
  world_.reset();
}

// A signal's end is one like any other: all ranks are here.
void Program::Train() {
  try {
    train_(*world_);
  } catch (const Stopped&) {
    if (state_->stopped_by == 0) throw;
  }
  if (!state_->unsaved.empty()) throw CheckpointError(state_->unsaved);
}

CollectivePlace Program::Place() const {
  return PlaceNow(world_->is_nccl(), /*queued=*/{}, joined_);
}

void Program::ReportPlace(const CollectivePlace& place) {
  member_.progress().SendPlace(place, member_.progress().words());
}

// A collective that is not done is given up.
void Program::ReportLastPlace() {
  try {
    stalls_->Stop();
    CollectivePlace place = Place();
    for (int i = 0; i < kRetireLooks && place.waits; ++i) {
      std::this_thread::sleep_for(kRetireInterval);
      place = Place();
    }
    place.waits.reset();
    ReportPlace(place);
  } catch (const std::exception&) {
    // The verdict is without it.
  }
}

void Program::TellLeaving() {
  if (world_->size() == 1) return;
  ReportLastPlace();
  try {
    world_->store()->set(kLeftKey,
                         std::to_string(world_->rank()) + " " + std::to_string(NumberOf(Place())));
  } catch (const std::exception&) {
    // Without the store the others find out by their timeout.
  }
}

void Program::CheckLeft(const CollectivePlace& place) {
  if (!place.waits || place.waits->group != kWorldGroup || !world_->store()->check({kLeftKey}))
    return;
  int rank = 0;
  std::int64_t last = 0;
  std::istringstream(world_->store()->get_to_str(kLeftKey)) >> rank >> last;
  if (place.waits->number <= last) return;
  ReportPlace(place);
  // The thread that waits cannot be woken on every device.
  std::_Exit(ReportFailure(name_,
                           "rank " + std::to_string(rank) +
                               " has returned from the function of Main() and will not call " +
                               NameOf(*place.waits) + ", in which rank " +
                               std::to_string(world_->rank()) +
                               " waits for it; let every rank call the same collectives",
                           kExitFailure));
}

// Work that has failed looks like work that is done.
std::optional<CollectivePlace> Program::ReportFailedPlace(const std::exception_ptr& error) {
  const bool is_over =
      world_ == nullptr || (world_->interrupt() && world_->interrupt()->triggered());
  if (is_over || CauseOf(error) != Cause::kPeer) return std::nullopt;
  try {
    CollectivePlace place = Place();
    const Collective* last = LastIn(kWorldGroup, place);
    if (!place.waits && last != nullptr && last->number > 0) {
      place.waits = *last;
      std::erase_if(place.last, [](const Collective& one) { return one.group == kWorldGroup; });
    }
    ReportPlace(place);
    return place;
  } catch (const std::exception&) {
    return std::nullopt;  // the verdict is without it
  }
}

void Program::LeaveRound() {
  const std::exception_ptr error = std::current_exception();
  const bool in_train = std::exchange(at_exit, nullptr) != nullptr;
  if (stalls_) stalls_->Stop();
  stalls_.reset();
  bool by_itself = false;
  // The barrier after it is no collective of the program's.
  std::optional<CollectivePlace> failed =
      in_train ? ReportFailedPlace(error) : std::optional<CollectivePlace>();
  if (member_.listener() == nullptr ||
      !EndsRoundOnly(error, *member_.listener(), by_itself, std::move(failed)))
    throw;
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

int Main(int argc, char** argv, const TrainFunction& train, MainOptions options) {
  const std::string program =
      argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "ddprun";
  if (options.keep_freed_memory) KeepFreedMemory();
  try {
    std::atexit(CallAtExit);
    const int signal = Program(program, train, std::move(options)).Run();
    return signal == 0 ? kExitSuccess : kExitSignal + signal;
  } catch (...) {
    return ReportFailure(program, std::current_exception());
  }
}

}  // namespace ddprun
