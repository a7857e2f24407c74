// SPDX-License-Identifier: Apache-2.0
// This process as rank r of n: the store, the process group and the device, created from the
// worker's environment.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/detail/choices.h"
#include "ddprun/errors.h"

namespace ddprun {

class Interrupt;
struct ProcessState;
struct ProgressMessage;
struct WorkerEnv;  // the library's, as the two above

// What all ranks must have alike, by name: ("--lr", "0.01"). An empty value is one that is not set.
using SharedFacts = std::vector<std::pair<std::string, std::string>>;

// The process group of all ranks and the device of this one. Not movable: others hold references to
// it. Every method that communicates must be called by all ranks in the same order, by one thread
// at a time.
class World {
 public:
  static constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(10);

  // Default timeout of an NCCL collective in a training step.
  static constexpr std::chrono::milliseconds kNcclStepTimeout = std::chrono::seconds(60);

  struct Options {
    BackendChoice backend = BackendChoice::kAuto;
    DeviceChoice device = DeviceChoice::kAuto;
    std::chrono::milliseconds timeout = kDefaultTimeout;  // of a collective, and of the set-up
    // A collective's in a training step, see ExpectPeersSoon(). 0: kNcclStepTimeout with NCCL, but
    // not above `timeout`, which it is with Gloo.
    std::chrono::milliseconds step_timeout{0};
    // Training steps may be recorded as CUDA graphs, collectives included.
    bool step_graphs = false;
    SharedFacts facts = {};  // that all ranks must have alike
    // Ends every wait of the world, Join()'s too. Null: nothing does. Main() gives one.
    std::shared_ptr<Interrupt> interrupt = nullptr;
    // What outlives the world in this process. Null: nothing does. Main() gives one.
    std::shared_ptr<ProcessState> process = nullptr;
  };

  // Joins the others. With NCCL a thread goes on to make the communicator; what needs the group
  // waits for it. Throws c10::Error or std::runtime_error with one sentence: a store that is
  // not reached, NCCL asked for without a GPU ("the backend nccl needs a CUDA device for each
  // ..."), a world that does not complete in time or whose ranks do not have the same facts;
  // RoundOver, where there is an interrupt.
  static std::unique_ptr<World> Join(const WorkerEnv& env, Options options);
  // As what this process's own environment says: a rank under ddprun, torchrun, srun or mpirun, or
  // by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; else alone. Throws std::invalid_argument that
  // names a variable that cannot be. Main() does it for programs that use that.
  static std::unique_ptr<World> Join(Options options);
  virtual ~World();

  // Null: this rank is not kept when its world ends.
  const std::shared_ptr<Interrupt>& interrupt() const { return interrupt_; }
  // Throws RoundOver if this world has ended: between steps, where no collective would tell. A rank
  // that is alone must call it in each step, or a node that joins waits for it (Checkpoints does).
  void CheckRound() const;

  const WorkerEnv& env() const { return *env_; }
  int rank() const;
  int size() const;
  int local_rank() const;  // among the ranks of this node
  int local_size() const;  // their number
  // How often the launcher has started workers in place of others.
  int restarts() const;
  // Timeout of a collective.
  std::chrono::milliseconds timeout() const { return timeout_; }
  // Timeout of a collective within a training step.
  std::chrono::milliseconds step_timeout() const { return step_timeout_; }
  virtual at::Device device() const = 0;
  virtual const std::string& backend_name() const = 0;  // "gloo" or "nccl"
  bool is_nccl() const { return backend_name() == "nccl"; }
  // One line for the user if device or backend are not what one would expect; else empty. Main()
  // and Join(Options) print it once, on rank 0's standard error.
  virtual const std::string& device_note() const = 0;
  // Throws what went wrong when the communicator was made.
  virtual const c10::intrusive_ptr<c10d::ProcessGroup>& group() const = 0;
  virtual const c10::intrusive_ptr<c10d::Store>& store() const = 0;

  // In place, over all ranks; any dtype that the backend knows; the tensor must be on device().
  virtual void AllReduceSum(at::Tensor& tensor) = 0;
  virtual void Broadcast(at::Tensor& tensor, int root) = 0;
  virtual void Barrier() = 0;

  // Every rank's tensor of the same shape and type, by rank: size() x ..., on the CPU.
  at::Tensor AllGather(const at::Tensor& own);
  // Every rank's text on rank 0, by rank; nothing on the others.
  std::vector<std::string> GatherTexts(const std::string& own);
  // The text of `root` on all ranks.
  std::string BroadcastText(std::string text, int root = 0);
  // Whether it is so on every rank.
  bool OnAllRanks(bool here);

  // Reports to the launcher how far this rank is, for `ddprun status`, metrics and the detection of
  // hangs. Does nothing without Main() or ddprun. Never waits; from any thread.
  void Progress(std::int64_t step, std::optional<std::int64_t> epoch = std::nullopt);

  // Collectives begun from now on: within a step, in which the ranks are together, or in what may
  // take one of them longer than others (evaluation, a file). Cheap, and of this rank alone.
  virtual void ExpectPeersSoon(bool soon) = 0;
  // Waits until the device has done what was queued: before a time is read.
  virtual void Synchronize() = 0;

  // Some of the ranks as a world of their own, with this one among them: numbered in the order of
  // `ranks`, same backend, device and timeout. Called by all of them with the same `name`, once.
  // Lives as long as this world, whose Shutdown() is also its own.
  virtual World& Subgroup(const std::string& name, const std::vector<int>& ranks) = 0;

  // A tensor's values once the device has made them, with a deadline. Throws PeerError if they do
  // not come in time, and RoundOver if the world has ended: what its collectives have made, is of
  // no use then.
  at::Tensor ToHost(const at::Tensor& tensor) const;

  // Leaves the group cleanly; nothing may communicate afterwards.
  virtual void Shutdown() = 0;

 protected:
  World(const WorkerEnv& env, std::chrono::milliseconds timeout,
        std::chrono::milliseconds step_timeout, std::shared_ptr<Interrupt> interrupt,
        std::shared_ptr<ProcessState> process);
  // For a process that is not kept.
  explicit World(const WorkerEnv& env, std::chrono::milliseconds timeout = kDefaultTimeout,
                 std::chrono::milliseconds step_timeout = kDefaultTimeout,
                 std::shared_ptr<Interrupt> interrupt = nullptr)
      : World(env, timeout, step_timeout, std::move(interrupt), nullptr) {}

 private:
  friend struct WorldAccess;  // detail/world_access.h

  virtual void AwaitAborted() {}

  const std::unique_ptr<const WorkerEnv> env_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::milliseconds step_timeout_;
  const std::shared_ptr<Interrupt> interrupt_;
  const std::shared_ptr<ProcessState> process_;
  int next_number_ = 0;
};

// For a collective of your own on World::group(), until the work is done. Throws what it threw, and
// RoundOver if the world has ended before. When a connection breaks, Gloo wakes whoever receives on
// it, but not always whoever sends, who would wait for the whole timeout otherwise. With NCCL the
// device waits and not the host, until the group is aborted: World::ToHost() reads what they make.
void Await(const World& world, const c10::intrusive_ptr<c10d::Work>& work);

}  // namespace ddprun
