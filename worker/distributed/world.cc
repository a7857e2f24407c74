// SPDX-License-Identifier: Apache-2.0
#include "worker/distributed/world.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "worker/base/quiet_log.h"
#include "worker/distributed/accelerator.h"
#include "worker/distributed/network_address.h"
#include "worker/distributed/roll_call.h"
#include "worker/distributed/world_store.h"

namespace ddprun {
namespace {

// The name and description that Python's init_process_group() gives the first group.
constexpr const char* kGroupName = "0";
constexpr const char* kGroupDescription = "default_pg";

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

c10::intrusive_ptr<c10d::Backend> MakeNccl(const WorkerEnv& env,
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
                                            .device = env.local_rank,
                                            .timeout = timeout,
                                            .group_name = group_name});
}

std::string Devices(int count) {
  return count == 0 ? "no CUDA device"
                    : std::to_string(count) + (count == 1 ? " CUDA device" : " CUDA devices");
}

// Whether kAuto takes NCCL: a driver alone is not enough, the module must open and CUDA must see
// the devices too.
bool NcclIsThere(const WorkerEnv& env) {
  if (DriverDeviceCount() < env.local_world_size)
    return false;  // asked first: it loads nothing of LibTorch's CUDA
  try {
    return LoadAccelerator().DeviceCount() >= env.local_world_size;
  } catch (const std::runtime_error&) {
    return false;  // a build for CPUs on a machine with GPUs
  }
}

bool WantsNccl(const WorkerEnv& env, BackendChoice choice) {
  if (choice == BackendChoice::kGloo) return false;
  if (choice == BackendChoice::kAuto) return NcclIsThere(env);
  const int devices = DriverDeviceCount();
  if (devices >= env.local_world_size) return true;
  throw std::runtime_error("--backend nccl needs a CUDA device for each of this node's " +
                           std::to_string(env.local_world_size) + " ranks; the driver shows " +
                           Devices(devices) + " to rank " + std::to_string(env.rank) +
                           "; use --backend gloo or fewer ranks a node");
}

// Says which backend this rank takes and checks that rank 0 takes the same: with --backend auto a
// node whose GPU fell out would choose Gloo and wait for NCCL's ranks until the time is over.
void AgreeOnBackend(c10d::Store& store, const WorkerEnv& env, const std::string& name) {
  constexpr const char* kKey = "ddprun/backend";
  if (env.rank == 0) store.set(kKey, name);
  const std::string wanted = store.get_to_str(kKey);
  if (wanted == name) return;
  throw std::runtime_error("rank " + std::to_string(env.rank) + " would use " + name +
                           ", rank 0 uses " + wanted +
                           "; give all ranks the same --backend, or each node enough CUDA devices");
}

std::string BackendName(bool nccl) { return nccl ? "nccl" : "gloo"; }

class GroupWorld : public World {
 public:
  struct Name {
    std::string group;
    std::string description;
  };

  // `store` is where its ranks meet; `group_store` what only this group's backend uses of it.
  GroupWorld(const WorkerEnv& env, std::chrono::milliseconds timeout, bool nccl, Name name,
             c10::intrusive_ptr<c10d::Store> store,
             const c10::intrusive_ptr<c10d::Store>& group_store)
      : World(env, timeout),
        nccl_(nccl),
        device_(nccl ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(env.local_rank))
                     : at::Device(at::kCPU)),
        name_(BackendName(nccl)),
        store_(std::move(store)) {
    // The device is made current first: NCCL and the allocator take the current one.
    if (nccl) LoadAccelerator().SetDevice(env.local_rank);
    backend_ = nccl ? MakeNccl(env, group_store, timeout, name.group)
                    : MakeGloo(env, group_store, timeout, name.group);
    backend_->setSequenceNumberForGroup();
    group_ = c10::make_intrusive<c10d::ProcessGroup>(group_store, env.rank, env.world_size);
    const BackendType type = nccl ? BackendType::NCCL : BackendType::GLOO;
    group_->setDefaultBackend(type);
    group_->setBackend(device_.type(), type, backend_);
    group_->setGroupName(name.group);
    group_->setGroupDesc(name.description);
    if (nccl) group_->setBoundDeviceId(device_);
  }

  at::Device device() const override { return device_; }
  const std::string& backend_name() const override { return name_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const override { return group_; }
  const c10::intrusive_ptr<c10d::Store>& store() const override { return store_; }

  void AllReduceSum(at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors{tensor};
    group_->allreduce(tensors)->wait();
  }

  void Broadcast(at::Tensor& tensor, int root) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    group_->broadcast(tensors, options)->wait();
  }

  void Barrier() override { group_->barrier()->wait(); }

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
    subgroups_.push_back(
        std::make_unique<GroupWorld>(env, timeout(), nccl_, Name{prefix, name}, store, store));
    return *subgroups_.back();
  }

  void Shutdown() override {
    // Nobody closes while another still talks; then the connections, then the store that rank 0 may
    // be serving.
    Barrier();
    Synchronize();
    for (const auto& subgroup : subgroups_) subgroup->group()->shutdown();
    group_->shutdown();
  }

 private:
  const bool nccl_;
  const at::Device device_;
  const std::string name_;
  const c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<std::unique_ptr<World>> subgroups_;
};

}  // namespace

BackendChoice ParseBackend(const std::string& text) {
  if (text == "auto") return BackendChoice::kAuto;
  if (text == "gloo") return BackendChoice::kGloo;
  if (text == "nccl") return BackendChoice::kNccl;
  throw std::invalid_argument("backend \"" + text + "\" is not known; use auto, gloo or nccl");
}

std::unique_ptr<World> World::Join(const WorkerEnv& env, Options options) {
  const bool nccl = WantsNccl(env, options.backend);
  const auto store = OpenWorldStore(env, options.timeout);
  {
    const QuietLog quiet;  // the sentence says what there is to say
    CallRoll(*store, env.rank, env.world_size, options.timeout);
    AgreeOnBackend(*store, env, BackendName(nccl));
  }
  return std::make_unique<GroupWorld>(env, options.timeout, nccl,
                                      GroupWorld::Name{kGroupName, kGroupDescription}, store,
                                      DefaultGroupStore(store, nccl ? "cuda" : "cpu"));
}

}  // namespace ddprun
