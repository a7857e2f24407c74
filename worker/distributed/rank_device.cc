// SPDX-License-Identifier: Apache-2.0
#include "worker/distributed/rank_device.h"

#include <stdexcept>

namespace ddprun {
namespace {

std::string Devices(int count) {
  return count == 0 ? "no CUDA device"
                    : std::to_string(count) + (count == 1 ? " CUDA device" : " CUDA devices");
}

std::string DriverShows(const WorkerEnv& env, int devices) {
  return "the driver shows " + Devices(devices) + " to rank " + std::to_string(env.rank);
}

[[noreturn]] void RefuseNccl(const WorkerEnv& env, int devices) {
  std::string sentence = "--backend nccl needs a CUDA device for each of this node's " +
                         std::to_string(env.local_world_size) + " ranks; " +
                         DriverShows(env, devices) + "; use --backend gloo or fewer ranks a node";
  if (devices > 0) sentence += ", or --device cuda --backend gloo, with which ranks share a GPU";
  throw std::runtime_error(sentence);
}

}  // namespace

RankDevice ChooseDevice(const WorkerEnv& env, BackendChoice backend, DeviceChoice device,
                        int devices) {
  const bool one_each = devices >= env.local_world_size;
  const bool wants_nccl = backend == BackendChoice::kNccl;
  if (device == DeviceChoice::kCpu) {
    if (wants_nccl) {
      throw std::runtime_error(
          "--backend nccl reduces on GPUs, but --device is cpu; use --backend gloo, or --device "
          "cuda");
    }
    return {};
  }
  if (device == DeviceChoice::kCuda && devices == 0) {
    throw std::runtime_error("--device cuda needs a CUDA device; " + DriverShows(env, 0) +
                             "; check the driver and CUDA_VISIBLE_DEVICES, or use --device cpu");
  }
  if (wants_nccl && !one_each) RefuseNccl(env, devices);
  const bool nccl = one_each && backend != BackendChoice::kGloo;
  if (device == DeviceChoice::kAuto && !nccl) return {};
  RankDevice chosen{.cuda = env.local_rank % devices, .nccl = nccl, .note = {}};
  if (!one_each) {
    chosen.note = std::to_string(env.local_world_size) + " ranks share " +
                  (devices == 1 ? "1 GPU" : std::to_string(devices) + " GPUs") +
                  ": gradients go by Gloo, as NCCL wants a device for each rank";
  }
  return chosen;
}

}  // namespace ddprun
