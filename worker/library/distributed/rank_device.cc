// SPDX-License-Identifier: Apache-2.0
#include "worker/library/distributed/rank_device.h"

#include <cstddef>
#include <map>
#include <stdexcept>

#include "worker/library/base/choice_names.h"

namespace ddprun {
namespace {

std::string Count(int count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string DriverShows(const WorkerEnv& env, int shown) {
  return "the driver shows " + (shown == 0 ? "no CUDA device" : Count(shown, "CUDA device")) +
         " to rank " + std::to_string(env.rank);
}

// A rank that must have a device has none that it can use.
[[noreturn]] void RefuseDevice(const std::string& needs, const WorkerEnv& env,
                               const CudaDevices& devices, const std::string& next) {
  if (devices.shown == 0 && !devices.problem.empty())
    throw std::runtime_error(needs + "; " + devices.problem);
  throw std::runtime_error(needs + "; " + DriverShows(env, devices.shown) +
                           (devices.problem.empty() ? "; " + next : ", but " + devices.problem));
}

RankDevice OnCpu(const std::string& note) { return {.cuda = -1, .uuid = "", .note = note}; }

std::string Rank(std::size_t rank) { return "rank " + std::to_string(rank); }

std::string NameOf(BackendChoice backend) {
  return NamesOf(backend)[static_cast<std::size_t>(backend)];
}

// The first pair of ranks that does not fit together, if any.
void CheckAlike(const std::vector<DeviceOffer>& ranks) {
  std::size_t asks = 0;  // the first that asks for a backend
  while (asks < ranks.size() && ranks[asks].backend == BackendChoice::kAuto) ++asks;
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].uuid.empty() != ranks[0].uuid.empty()) {
      const bool first = ranks[0].uuid.empty();
      const std::string cpu = Rank(first ? 0 : rank);
      const std::string& note = ranks[first ? 0 : rank].note;
      throw std::runtime_error(cpu + " would train on the CPU, " + Rank(first ? rank : 0) +
                               " on a GPU" + (note.empty() ? "" : " (" + note + ")") +
                               "; give all ranks the same device and backend, or check the "
                               "driver and CUDA_VISIBLE_DEVICES where " +
                               cpu + " runs");
    }
    const BackendChoice backend = ranks[rank].backend;
    if (rank > asks && backend != BackendChoice::kAuto && backend != ranks[asks].backend) {
      throw std::runtime_error(Rank(rank) + " has the backend " + NameOf(backend) + ", " +
                               Rank(asks) + " the backend " + NameOf(ranks[asks].backend) +
                               "; give all ranks the same");
    }
  }
}

bool AnyAsksFor(BackendChoice backend, const std::vector<DeviceOffer>& ranks) {
  for (const DeviceOffer& offer : ranks) {
    if (offer.backend == backend) return true;
  }
  return false;
}

}  // namespace

RankDevice ChooseDevice(const WorkerEnv& env, BackendChoice backend, DeviceChoice device,
                        const CudaDevices& devices) {
  const bool wants_nccl = backend == BackendChoice::kNccl;
  if (device == DeviceChoice::kCpu) {
    if (wants_nccl) {
      throw std::runtime_error(
          "the backend nccl reduces on GPUs, but the device is cpu; choose the backend gloo, or "
          "the "
          "device cuda");
    }
    return {};
  }
  const int usable = static_cast<int>(devices.uuids.size());
  if (device == DeviceChoice::kCuda && usable == 0) {
    RefuseDevice("the device cuda needs a CUDA device", env, devices,
                 "check the driver and CUDA_VISIBLE_DEVICES, or choose the device cpu");
  }
  if (wants_nccl && usable == 0) {
    RefuseDevice("the backend nccl needs a CUDA device for each of this node's " +
                     Count(env.local_world_size, "rank"),
                 env, devices, "choose the backend gloo or fewer ranks a node");
  }
  if (devices.shown == 0)
    return OnCpu(devices.problem.empty() ? "" : "the CPU is used: " + devices.problem);
  const std::string though = "the CPU is used, though " + DriverShows(env, devices.shown);
  if (device == DeviceChoice::kAuto && backend == BackendChoice::kGloo) {
    return OnCpu(
        though +
        ": the device auto means the CPU with the backend gloo; choose the device cuda to use "
        "a GPU");
  }
  if (usable == 0) return OnCpu(though + ": " + devices.problem);
  const int chosen = env.local_rank % usable;
  return {.cuda = chosen, .uuid = devices.uuids[static_cast<std::size_t>(chosen)], .note = ""};
}

std::string ToText(const DeviceOffer& offer) {
  return NameOf(offer.backend) + " " + offer.uuid + " " + offer.note;
}

DeviceOffer ParseOffer(const std::string& text) {
  const std::size_t first = text.find(' ');
  const std::size_t second = text.find(' ', first + 1);
  for (const auto backend : {BackendChoice::kAuto, BackendChoice::kGloo, BackendChoice::kNccl}) {
    if (second != std::string::npos && text.substr(0, first) == NameOf(backend)) {
      return {.backend = backend,
              .uuid = text.substr(first + 1, second - first - 1),
              .note = text.substr(second + 1)};
    }
  }
  throw std::runtime_error("a rank's device is announced as \"" + text +
                           "\", which this program does not know; start all ranks with the same");
}

GroupBackend ChooseBackend(const std::vector<DeviceOffer>& ranks) {
  CheckAlike(ranks);
  if (ranks[0].uuid.empty()) return {};
  std::map<std::string, std::size_t> first;  // rank, by its device
  std::string shared;                        // the first two ranks with the same
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [found, is_new] = first.emplace(ranks[rank].uuid, rank);
    if (!is_new && shared.empty())
      shared = "ranks " + std::to_string(found->second) + " and " + std::to_string(rank);
  }
  if (shared.empty()) return {.nccl = !AnyAsksFor(BackendChoice::kGloo, ranks), .note = ""};
  if (AnyAsksFor(BackendChoice::kNccl, ranks)) {
    throw std::runtime_error("the backend nccl needs a CUDA device for each rank, but " + shared +
                             " have the same; start fewer ranks a node, or choose the device "
                             "cuda and the backend gloo, with which ranks share a GPU");
  }
  return {.nccl = false,
          .note = Count(static_cast<int>(ranks.size()), "rank") + " share " +
                  Count(static_cast<int>(first.size()), "GPU") + " (" + shared +
                  " have the same): gradients go by Gloo, as NCCL wants a device for each rank; "
                  "start one rank a GPU to use NCCL"};
}

}  // namespace ddprun
