// SPDX-License-Identifier: Apache-2.0
#include "worker/library/distributed/device_agreement.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <utility>
#include <vector>

#include "worker/library/accelerator/accelerator.h"
#include "worker/library/distributed/roll_call.h"

namespace ddprun {
namespace {

constexpr const char* kGloo = "gloo";
constexpr const char* kNccl = "nccl";

}  // namespace

CudaDevices FindCudaDevices(BackendChoice backend, DeviceChoice device) {
  if (device == DeviceChoice::kCpu) return {};
  DriverView driver = AskDriver();
  std::vector<std::string>& shown = driver.devices;
  CudaDevices found{.shown = static_cast<int>(shown.size()), .problem = driver.problem};
  const bool takes_cpu = device == DeviceChoice::kAuto && backend == BackendChoice::kGloo;
  if (shown.empty() || takes_cpu) return found;
  try {
    const Accelerator& accelerator = LoadAccelerator();
    shown.resize(
        std::min(shown.size(), static_cast<std::size_t>(std::max(0, accelerator.DeviceCount()))));
    found.uuids = std::move(shown);
    if (found.uuids.empty()) {
      found.problem = "LibTorch cannot use any (" + accelerator.Versions() +
                      "); update the driver, or choose the CPU";
    }
  } catch (const std::runtime_error& error) {
    found.problem = error.what();
  }
  return found;
}

AgreedDevice AgreeOnBackend(c10d::Store& store, const WorkerEnv& env, BackendChoice backend,
                            const RankDevice& own) {
  const std::string decision =
      DecideTogether(store, env.rank, env.world_size, "device",
                     ToText({.backend = backend, .uuid = own.uuid, .note = own.note}),
                     [](const std::vector<std::string>& texts) {
                       std::vector<DeviceOffer> offers;
                       for (const std::string& text : texts) offers.push_back(ParseOffer(text));
                       const GroupBackend chosen = ChooseBackend(offers);
                       return (chosen.nccl ? kNccl : kGloo) + (" " + chosen.note);
                     });
  const std::size_t space = decision.find(' ');
  const std::string note = decision.substr(space + 1);
  return {.cuda = own.cuda,
          .nccl = decision.substr(0, space) == kNccl,
          .note = note.empty() ? own.note : note};
}

void PrintDeviceNote(const World& world) {
  if (world.rank() != 0 || world.device_note().empty()) return;
  std::fprintf(stderr, "ddprun: %s\n", world.device_note().c_str());
}

}  // namespace ddprun
