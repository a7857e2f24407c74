// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/health_facts.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "launcher/base/small_file.h"
#include "launcher/doctor/doctor_facts.h"
#include "launcher/placement/devices.h"
#include "launcher/placement/gpus.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {
namespace {

// The driver frees the memory of a process that has ended within seconds.
constexpr std::chrono::seconds kGpuMemoryWait{10};
constexpr std::chrono::milliseconds kGpuMemoryInterval{500};
constexpr std::size_t kLogRecordBytes = 8192;
// Above the size of the kernel's log on large machines.
constexpr std::size_t kKernelLogBytesMax = 32u << 20;

// The kernel's log, each record of which is one read; "" where this user may not see it.
std::string ReadKernelLog() {
  const OwnedFd log(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string records;
  char record[kLogRecordBytes];
  while (log.valid() && records.size() < kKernelLogBytesMax) {
    const ssize_t count = read(log.get(), record, sizeof(record));
    // One that was overwritten meanwhile.
    if (count < 0 && errno == EPIPE) continue;
    if (count <= 0) break;
    records.append(record, static_cast<std::size_t>(count));
  }
  return records;
}

std::int64_t MicrosecondsOfKernel() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000 + time.tv_nsec / 1000;
}

// The indices of those that CUDA_VISIBLE_DEVICES and --gpus leave, in their order.
std::vector<int> ChosenGpus(const HealthRequest& request, const NvmlReport& nvml) {
  std::vector<Gpu> gpus;
  // The index in the place of the NUMA node, to know them again.
  for (const GpuHealth& one : nvml.gpus) gpus.push_back({.uuid = one.uuid, .node = one.index});
  const auto entries =
      ChooseGpus(VisibleGpus(static_cast<int>(gpus.size()), ReadVariable("CUDA_VISIBLE_DEVICES")),
                 request.gpus, gpus);
  std::vector<int> chosen;
  if (!entries.ok()) return chosen;
  for (const Gpu& gpu : GpusOf(*entries, gpus)) chosen.push_back(gpu.node);
  return chosen;
}

void CollectGpuHealth(const HealthRequest& request, HealthFacts& facts) {
  facts.gpus_in_use = request.workers;
  facts.gpu_devices = CountGpuDevices("");
  const TimePoint deadline = std::chrono::steady_clock::now() + kGpuMemoryWait;
  while (true) {
    facts.nvml = ReadNvml();
    facts.gpus = ChosenGpus(request, facts.nvml);
    if (!GpuMemoryIsInUse(facts) || std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(kGpuMemoryInterval);
  }
  if (!facts.nvml.gpus.empty()) facts.xids = XidsIn(ReadKernelLog(), MicrosecondsOfKernel());
}

FolderFacts ReadFolder(const std::string& path) {
  FolderFacts folder{.path = path};
  struct statvfs info {};
  // One that the run is going to make is on the disk of the folder above.
  std::filesystem::path existing = path;
  while (statvfs(existing.c_str(), &info) != 0) {
    if (errno != ENOENT || !existing.has_relative_path()) {
      folder.error = ErrnoText(errno);
      return folder;
    }
    existing = existing.has_parent_path() ? existing.parent_path() : ".";
  }
  folder.bytes = static_cast<std::int64_t>(info.f_blocks * info.f_frsize);
  folder.bytes_free = static_cast<std::int64_t>(info.f_bavail * info.f_frsize);
  folder.files = static_cast<std::int64_t>(info.f_files);
  folder.files_free = static_cast<std::int64_t>(info.f_favail);
  folder.read_only = (info.f_flag & ST_RDONLY) != 0;
  return folder;
}

// Those of the command line, that of temporary files, the shared memory, and the working folder if
// workers may write there.
void CollectFolders(const HealthRequest& request, HealthFacts& facts) {
  std::vector<std::string> paths = request.folders;
  paths.push_back(ReadVariable("TMPDIR").value_or("/tmp"));
  if (access("/dev/shm", F_OK) == 0) paths.emplace_back("/dev/shm");
  if (access(".", W_OK) == 0) {
    std::error_code error;
    paths.push_back(std::filesystem::current_path(error).string());
  }
  for (const std::string& path : paths) facts.folders.push_back(ReadFolder(path));
}

// "ACTIVE" of "4: ACTIVE".
std::string StateIn(const std::filesystem::path& file) {
  const std::string text = ReadSmallFile(file.string());
  return std::string(absl::StripAsciiWhitespace(text.substr(text.find(':') + 1)));
}

void CollectNetwork(HealthFacts& facts) {
  facts.interfaces = ReadInterfaces();
  facts.nccl_socket_ifname = ReadVariable("NCCL_SOCKET_IFNAME").value_or("");
  facts.nccl_ib_hca = ReadVariable("NCCL_IB_HCA").value_or("");
  facts.without_ib = ReadVariable("NCCL_IB_DISABLE").value_or("0") != "0";
  std::error_code error;
  for (std::filesystem::directory_iterator device("/sys/class/infiniband", error), end;
       !error && device != end; device.increment(error)) {
    std::error_code none;
    for (std::filesystem::directory_iterator port(device->path() / "ports", none);
         !none && port != end; port.increment(none)) {
      facts.ports.push_back({.device = device->path().filename().string(),
                             .port = port->path().filename().string(),
                             .state = StateIn(port->path() / "state"),
                             .physical = StateIn(port->path() / "phys_state")});
    }
  }
}

}  // namespace

HealthFacts CollectHealthFacts(absl::string_view check, const HealthRequest& request) {
  HealthFacts facts;
  if (check == "gpu") CollectGpuHealth(request, facts);
  if (check == "disk") CollectFolders(request, facts);
  if (check == "clock") facts.unix_seconds = time(nullptr);
  if (check == "network") CollectNetwork(facts);
  return facts;
}

}  // namespace ddprun
