// SPDX-License-Identifier: Apache-2.0
#include "ddprun/world.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "ddprun/detail/collectives.h"
#include "ddprun/detail/interrupt.h"
#include "ddprun/detail/world_access.h"
#include "proto/worker_env.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/library/base/background_task.h"
#include "worker/library/base/first_line.h"
#include "worker/library/base/quiet_log.h"
#include "worker/library/base/torch_versions.h"
#include "worker/library/distributed/device_agreement.h"
#include "worker/library/distributed/nccl_settings.h"
#include "worker/library/distributed/network_address.h"
#include "worker/library/distributed/peer_probe.h"
#include "worker/library/distributed/roll_call.h"
#include "worker/library/distributed/world_store.h"
#include "worker/library/rounds/process_state.h"
#include "worker/library/rounds/tcp_sockets.h"

namespace ddprun {
namespace {

// The name and description that Python's init_process_group() gives the first group.
constexpr const char* kGroupName = "0";
constexpr const char* kGroupDescription = "default_pg";

constexpr std::chrono::microseconds kReadPause{50};

// For the thread that queues collectives, until they are aborted without it. Its waits end with the
// round, so it takes milliseconds.
constexpr std::chrono::seconds kLeaveLimit{1};

using BackendType = c10d::ProcessGroup::BackendType;

c10::intrusive_ptr<c10d::Backend> MakeGloo(const WorkerEnv& env,
                                           const c10::intrusive_ptr<c10d::Store>& store,
                                           std::chrono::milliseconds timeout,
                                           const std::string& group_name) {
  using Gloo = c10d::ProcessGroupGloo;
  c10::intrusive_ptr<Gloo::Options> options;
  if (std::getenv("GLOO_SOCKET_IFNAME") != nullptr) {
    options = Gloo::Options::create_default(timeout);  // which reads the variable
  } else {
    // The default would bind to what the host's name resolves to, which need not be what the others
    // can reach.
    const std::string address = env.world_size == 1 ? "127.0.0.1" : AddressForPeers(env);
    options = Gloo::Options::create(timeout);
    options->devices.push_back(
        Gloo::createDeviceForHostname(address, c10d::getDefaultGlooLazyInit()));
  }
  options->group_name = group_name;
  return c10::make_intrusive<Gloo>(store, env.rank, env.world_size, std::move(options));
}

// The same; where ranks of several nodes do not connect in time, the sentence says which. Gloo
// itself tries five times as long.
c10::intrusive_ptr<c10d::Backend> MakeGlooInTime(const WorkerEnv& env,
                                                 const c10::intrusive_ptr<c10d::Store>& store,
                                                 std::chrono::milliseconds timeout,
                                                 const std::string& group_name) {
  if (env.world_size <= env.local_world_size) return MakeGloo(env, store, timeout, group_name);
  const auto made = std::make_shared<c10::intrusive_ptr<c10d::Backend>>();
  const auto limit = timeout - std::min(kPeerProbeTime, timeout / 2);
  const QuietLog quiet;
  BackgroundTask connecting("Gloo", limit, [made, env, store, timeout, group_name] {
    *made = MakeGloo(env, store, timeout, group_name);
  });
  std::string reason;
  try {
    connecting.Wait();
    return *made;
  } catch (const c10::Error& error) {
    reason = FirstLine(error);
  } catch (const std::exception& error) {
    reason = error.what();
  }
  const std::string rank = "rank " + std::to_string(env.rank);
  const std::string unreached = FindUnreachable(store, env);
  if (unreached.empty())
    throw std::runtime_error(rank + " has no connections to the others: " + reason);
  throw std::runtime_error(
      rank + " does not reach " + unreached +
      "; NCCL and Gloo connect nodes at any port: let TCP through between them (`ddprun doctor` "
      "tries all nodes)");
}

c10::intrusive_ptr<c10d::Backend> MakeNccl(const WorkerEnv& env, int device,
                                           const c10::intrusive_ptr<c10d::Store>& store,
                                           std::chrono::milliseconds timeout,
                                           const std::string& group_name) {
  if (env.world_size > 1 && std::getenv("NCCL_SOCKET_IFNAME") == nullptr) {
    const std::string interface = InterfaceOf(AddressForPeers(env));
    // "=": that interface and none whose name begins like it.
    if (!interface.empty())
      setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), /*overwrite=*/0);
  }
  return LoadAccelerator().MakeNccl(store, {.rank = env.rank,
                                            .size = env.world_size,
                                            .device = device,
                                            .timeout = timeout,
                                            .group_name = group_name});
}

// Sets NCCL's variables that are not the user's; before the first group of NCCL's.
void SetNcclDefaults(const NcclUse& use) {
  const auto get_env = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  for (const auto& [name, value] : NcclDefaults(get_env, use))
    setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
}

std::string BackendName(const AgreedDevice& device) { return device.nccl ? "nccl" : "gloo"; }

at::Device DeviceOf(const AgreedDevice& device) {
  if (device.cuda < 0) return {at::kCPU};
  return {at::kCUDA, static_cast<c10::DeviceIndex>(device.cuda)};
}

struct Timeouts {
  std::chrono::milliseconds set_up{0};
  std::chrono::milliseconds step{0};
};

Timeouts TimeoutsOf(const World::Options& options, bool nccl) {
  if (options.step_timeout.count() > 0) return {options.timeout, options.step_timeout};
  return {options.timeout,
          nccl ? std::min(options.timeout, World::kNcclStepTimeout) : options.timeout};
}

class GroupWorld : public World {
 public:
  struct Name {
    std::string group;
    std::string description;
  };

  // `store` is where its ranks meet; `group_store` what only this group's backend uses of it.
  GroupWorld(const WorkerEnv& env, Timeouts timeouts, const AgreedDevice& device, Name name,
             c10::intrusive_ptr<c10d::Store> store,
             const c10::intrusive_ptr<c10d::Store>& group_store,
             std::shared_ptr<Interrupt> interrupt = nullptr,
             std::shared_ptr<ProcessState> process = nullptr)
      : World(env, timeouts.set_up, timeouts.step, std::move(interrupt), std::move(process)),
        timeouts_(timeouts),
        chosen_(device),
        device_(DeviceOf(device)),
        name_(BackendName(device)),
        store_(std::move(store)) {
    // The device is made current first: NCCL and the allocator take the current one.
    if (device_.is_cuda()) LoadAccelerator().SetDevice(device.cuda);
    backend_ = device.nccl ? MakeNccl(env, device.cuda, group_store, timeouts.set_up, name.group)
                           : MakeGlooInTime(env, group_store, timeouts.set_up, name.group);
    SetSequenceNumber(*backend_);
    group_ = c10::make_intrusive<c10d::ProcessGroup>(group_store, env.rank, env.world_size);
    const BackendType type = device.nccl ? BackendType::NCCL : BackendType::GLOO;
    group_->setDefaultBackend(type);
    // First, since the group hands its own on to the backend, also none.
    if (device.nccl) group_->setBoundDeviceId(device_);
    group_->setBackend(device_.type(), type, backend_);
    // Gloo's barrier is of a CPU's tensor.
    if (!device.nccl && device_.is_cuda()) group_->setBackend(at::kCPU, type, backend_);
    group_->setGroupName(name.group);
    group_->setGroupDesc(name.description);
  }

  // Once, before the group is used.
  void Connect() {
    if (!chosen_.nccl) return;
    connecting_.emplace("NCCL's communicator of all ranks", timeouts_.set_up,
                        [backend = backend_, device = chosen_.cuda, timeout = timeouts_.set_up] {
                          LoadAccelerator().Connect(backend, device, timeout);
                        });
  }

  // What a broken connection has left waiting in Gloo ends with its timeout, and what NCCL's abort
  // waits for may not end at all: the last references go to a thread that nobody waits for.
  ~GroupWorld() override {
    closing_.reset();  // which may have one; from here on no action begins or runs
    if (!interrupt() || !interrupt()->triggered()) return;
    std::thread([store = store_, backend = std::move(backend_), group = std::move(group_),
                 aborting = std::move(aborting_)] {
    }).detach();
  }

  // `closing` ends when the world does.
  void CloseWith(Interrupt::Registration closing) { closing_ = std::move(closing); }

  // Once, where NCCL's collectives, which nobody else can end, may have to end with the round.
  // ncclCommAbort() must not meet a collective that is being queued on the communicator, so the
  // thread that queues them leaves first; one that hangs there is not waited for.
  void AbortWith(Interrupt& interrupt) {
    closing_ =
        interrupt.Register([aborting = aborting_, backend = backend_, device = chosen_.cuda,
                            left = left_.get_future().share(), before = std::move(closing_)] {
          aborting->emplace("the end of NCCL's collectives", WorldAccess::kAbortLimit,
                            [backend, device, left] {
                              left.wait_for(kLeaveLimit);
                              LoadAccelerator().SetDevice(device);
                              backend->abort();
                            });
        });
  }

  void AwaitAborted() override {
    if (!device_.is_cuda() || !interrupt()) return;
    if (!std::exchange(has_left_, true)) left_.set_value();
    interrupt()->Trigger();  // returns when its actions have run, also those of another thread
    if (*aborting_) (*aborting_)->Wait();
    BackgroundTask("the GPU", WorldAccess::kAbortLimit, [device = device_.index()] {
      LoadAccelerator().Synchronize(device);
    }).Wait();
  }

  at::Device device() const override { return device_; }
  const std::string& backend_name() const override { return name_; }
  const std::string& device_note() const override { return chosen_.note; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const override {
    if (connecting_) connecting_->Wait([this] { CheckRound(); });
    return group_;
  }
  const c10::intrusive_ptr<c10d::Store>& store() const override { return store_; }

  void AllReduceSum(at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors{tensor};
    Await(*this, group()->allreduce(tensors));
  }

  void Broadcast(at::Tensor& tensor, int root) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    Await(*this, group()->broadcast(tensors, options));
  }

  void Barrier() override {
    // The host would wait for the device in CUDA, where nothing limits it.
    if (is_nccl())
      OnAllRanks(true);
    else
      Await(*this, group()->barrier());
  }

  void ExpectPeersSoon(bool soon) override {
    const auto timeout = soon ? timeouts_.step : timeouts_.set_up;
    if (timeout == timeout_now_) return;
    timeout_now_ = timeout;
    backend_->setTimeout(timeout);
    for (const auto& subgroup : subgroups_) subgroup->ExpectPeersSoon(soon);
  }

  void Synchronize() override {
    if (device_.is_cuda()) LoadAccelerator().Synchronize(device_.index());
  }

  World& Subgroup(const std::string& name, const std::vector<int>& ranks) override {
    const auto place = std::find(ranks.begin(), ranks.end(), rank());
    TORCH_INTERNAL_ASSERT(place != ranks.end());
    WorkerEnv env = this->env();
    env.rank = static_cast<int>(place - ranks.begin());
    env.world_size = static_cast<int>(ranks.size());
    // Ranks of other groups of the same kind have the same name for theirs, and other keys.
    const std::string prefix = "ddprun/group/" + name + "/" + std::to_string(ranks.front());
    const auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, store_);
    group();  // two communicators at a time are made in another order on another rank
    subgroups_.push_back(
        std::make_unique<GroupWorld>(env, timeouts_, chosen_, Name{prefix, name}, store, store));
    return *subgroups_.back();
  }

  void Shutdown() override {
    // No rank closes while another communicates. The connections are next, and last the store that
    // rank 0 may be serving. Others may come here much later, which is no hang of this rank.
    ProgressMessage waits;
    waits.pauses = true;
    WorldAccess::Report(*this, waits);
    Barrier();
    Synchronize();
    for (const auto& subgroup : subgroups_) subgroup->group()->shutdown();
    group_->shutdown();
  }

 private:
  const Timeouts timeouts_;
  const AgreedDevice chosen_;
  const at::Device device_;
  const std::string name_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  // Empty if there is nothing to wait for. Mutable because const methods wait, too.
  mutable std::optional<BackgroundTask> connecting_;
  std::chrono::milliseconds timeout_now_ = timeouts_.set_up;
  std::vector<std::unique_ptr<World>> subgroups_;
  // Empty until the world has ended. Written by the thread that triggers the interrupt.
  std::shared_ptr<std::optional<BackgroundTask>> aborting_ =
      std::make_shared<std::optional<BackgroundTask>>();
  std::promise<void> left_;  // the thread that queues collectives queues no more
  bool has_left_ = false;
  Interrupt::Registration closing_;
};

// Makes a value on another thread, which is left alone when the round ends: not every wait in there
// can be ended.
std::unique_ptr<World> UntilInterrupted(Interrupt& interrupt,
                                        std::function<std::unique_ptr<World>()> make) {
  struct Result {
    std::promise<void> ready;
    std::atomic<bool> is_ready = false;
    std::unique_ptr<World> world;
    std::exception_ptr error;
    void SetReady() {
      if (!is_ready.exchange(true)) ready.set_value();
    }
  };
  const auto result = std::make_shared<Result>();
  const auto registration = interrupt.Register([result] { result->SetReady(); });
  std::thread([result, make = std::move(make)] {
    std::unique_ptr<World> world;
    try {
      world = make();
    } catch (...) {
      result->error = std::current_exception();
    }
    if (!result->is_ready) result->world = std::move(world);
    result->SetReady();
  }).detach();
  result->ready.get_future().wait();
  interrupt.Check();
  if (result->error) std::rethrow_exception(result->error);
  return std::move(result->world);
}

std::unique_ptr<World> JoinAll(const WorkerEnv& env, const World::Options& options) {
  const RankDevice own = ChooseDevice(env, options.backend, options.device,
                                      FindCudaDevices(options.backend, options.device));
  // The connections of this world are those that are made from here on: the store's and Gloo's.
  Interrupt::Registration closing;
  if (options.interrupt)
    closing = options.interrupt->Register(
        [others = ConnectedTcpSockets()] { ShutDownTcpSockets(others); });
  const auto store = OpenWorldStore(env, options.timeout);
  AgreedDevice chosen;
  {
    const QuietLog quiet;  // the exception's sentence is enough
    CallRoll(*store, env.rank, env.world_size, options.timeout, options.facts);
    chosen = AgreeOnBackend(*store, env, options.backend, own);
  }
  if (chosen.nccl)
    SetNcclDefaults({.step_graphs = options.step_graphs && env.world_size > 1,
                     .kept = options.interrupt != nullptr});
  auto world =
      std::make_unique<GroupWorld>(env, TimeoutsOf(options, chosen.nccl), chosen,
                                   GroupWorld::Name{kGroupName, kGroupDescription}, store,
                                   DefaultGroupStore(store, chosen.cuda >= 0 ? "cuda" : "cpu"),
                                   options.interrupt, options.process);
  world->Connect();
  world->CloseWith(std::move(closing));
  if (chosen.nccl && options.interrupt) world->AbortWith(*options.interrupt);
  return world;
}

}  // namespace

World::World(const WorkerEnv& env, std::chrono::milliseconds timeout,
             std::chrono::milliseconds step_timeout, std::shared_ptr<Interrupt> interrupt,
             std::shared_ptr<ProcessState> process)
    : env_(std::make_unique<const WorkerEnv>(env)),
      timeout_(timeout),
      step_timeout_(step_timeout),
      interrupt_(std::move(interrupt)),
      process_(std::move(process)) {}
World::~World() = default;

int World::rank() const { return env_->rank; }
int World::size() const { return env_->world_size; }
int World::local_rank() const { return env_->local_rank; }
int World::local_size() const { return env_->local_world_size; }
int World::restarts() const { return env_->restart_count; }

void World::CheckRound() const {
  if (interrupt_) interrupt_->Check();
}

void World::Progress(std::int64_t step, std::optional<std::int64_t> epoch) {
  ProgressMessage message;
  message.step = step;
  message.epoch = epoch;
  message.section = "training";
  WorldAccess::Report(*this, message);
}

void WorldAccess::Report(const World& world, const ProgressMessage& message) {
  if (world.process_) world.process_->report(message);
}

at::Tensor World::ToHost(const at::Tensor& tensor) const {
  if (!tensor.is_cuda()) return tensor.cpu();
  const auto deadline = std::chrono::steady_clock::now() + timeout();
  const auto made = LoadAccelerator().MakeMark();
  while (!made->Passed()) {
    CheckRound();
    if (std::chrono::steady_clock::now() >= deadline)
      throw PeerError("rank " + std::to_string(rank()) +
                      ": a collective on the GPU has not ended in time; another rank hangs or is "
                      "slower, whose own output may say why; a longer timeout gives it longer");
    std::this_thread::sleep_for(kReadPause);
  }
  CheckRound();
  return tensor.cpu();
}

at::Tensor World::AllGather(const at::Tensor& own) {
  if (size() == 1) return own.cpu().unsqueeze(0);
  std::vector<at::Tensor> input{own.to(device())};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int i = 0; i < size(); ++i) outputs[0].push_back(at::empty_like(input[0]));
  Await(*this, group()->allgather(outputs, input));
  return ToHost(at::stack(outputs[0]));
}

std::vector<std::string> World::GatherTexts(const std::string& own) {
  if (size() == 1) return {own};
  const auto length = static_cast<std::int64_t>(own.size());
  const at::Tensor lengths = AllGather(at::full({1}, length, at::kLong));
  // A gather is of equal parts.
  at::Tensor padded = at::zeros({lengths.max().item<std::int64_t>()}, at::kByte);
  std::copy(own.begin(), own.end(), padded.data_ptr<std::uint8_t>());
  std::vector<at::Tensor> inputs{padded.to(device())};
  std::vector<std::vector<at::Tensor>> outputs(rank() == 0 ? 1 : 0);
  for (int i = 0; rank() == 0 && i < size(); ++i) outputs[0].push_back(at::empty_like(inputs[0]));
  Await(*this, group()->gather(outputs, inputs, {.rootRank = 0}));
  std::vector<std::string> texts;
  for (int i = 0; rank() == 0 && i < size(); ++i) {
    const at::Tensor bytes = ToHost(outputs[0][static_cast<std::size_t>(i)]);
    const auto* begin = bytes.const_data_ptr<std::uint8_t>();
    texts.emplace_back(begin, begin + lengths[i].item<std::int64_t>());
  }
  return texts;
}

std::string World::BroadcastText(std::string text, int root) {
  if (size() == 1) return text;
  at::Tensor length = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong).to(device());
  Broadcast(length, root);
  text.resize(static_cast<std::size_t>(ToHost(length).item<std::int64_t>()));
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.data_ptr<std::uint8_t>());
  bytes = bytes.to(device());
  Broadcast(bytes, root);
  bytes = ToHost(bytes);
  const auto* begin = bytes.const_data_ptr<std::uint8_t>();
  return {begin, begin + bytes.numel()};
}

bool World::OnAllRanks(bool here) {
  at::Tensor elsewhere = at::full({1}, here ? 0 : 1, at::kInt).to(device());
  AllReduceSum(elsewhere);
  return ToHost(elsewhere).item<int>() == 0;
}

std::unique_ptr<World> World::Join(Options options) {
  const absl::StatusOr<WorkerEnv> env = FromProcessEnviron();
  if (!env.ok()) throw std::invalid_argument(std::string(env.status().message()));
  auto world = Join(*env, std::move(options));
  PrintDeviceNote(*world);
  return world;
}

std::unique_ptr<World> World::Join(const WorkerEnv& env, Options options) {
  if (!options.interrupt) return JoinAll(env, std::move(options));
  Interrupt& interrupt = *options.interrupt;
  auto world = UntilInterrupted(
      interrupt, [env, options = std::move(options)] { return JoinAll(env, options); });
  // It is current on the thread that has made the world.
  if (world->device().is_cuda()) LoadAccelerator().SetDevice(world->device().index());
  return world;
}

}  // namespace ddprun
