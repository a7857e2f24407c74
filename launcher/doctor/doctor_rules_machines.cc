// SPDX-License-Identifier: Apache-2.0
// Each machine by itself: limits, memory, the kernel, GPUs.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/doctor/doctor_rules.h"

namespace ddprun {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// The usual soft limit. With less, DataLoader's workers and NCCL's connections soon run out.
constexpr std::int64_t kFilesMin = 1024;
// A worker has a thread a core for each library with a pool of its own, and its loaders have too.
constexpr std::int64_t kProcessesMin = 4096;
constexpr std::int64_t kProcessesLeftMin = 1024;
// One batch of images of a few loaders, or NCCL's buffers of two workers, do not fit into less.
constexpr std::int64_t kShmFail = 32 * kMiB;
// Above Docker's and Kubernetes's 64 MiB, which is what people run out of.
constexpr std::int64_t kShmMin = 256 * kMiB;
// LibTorch alone takes about this much once it has computed something.
constexpr std::int64_t kMemoryOfWorker = 512 * kMiB;
// What RDMA pins are whole communication buffers.
constexpr std::int64_t kPinnedMin = 1024 * kMiB;

class Machine {
 public:
  Machine(const NodeFacts& node, std::vector<Finding>& findings)
      : node_(node), findings_(findings) {}

  void Report(const char* check, Health health, std::string text) {
    findings_.push_back({check, health, {node_.node}, std::move(text)});
  }

  void CheckFiles() {
    if (node_.nofile != kNoNumber && node_.nofile < kFilesMin) {
      return Report("nofile", Health::kWarning,
                    absl::StrCat("workers may open ", node_.nofile,
                                 " files each (\"Too many open files\"); ulimit -n ", kFilesMin,
                                 " or more before ddprun",
                                 node_.nofile_hard != kNoNumber && node_.nofile_hard < kFilesMin
                                     ? ", and nofile in /etc/security/limits.conf"
                                     : ""));
    }
    Report("nofile", Health::kOk,
           node_.nofile == kNoNumber ? "no limit" : absl::StrCat(node_.nofile, " files a worker"));
  }

  void CheckPinned() {
    if (!node_.rdma) return Report("memlock", Health::kOk, "no RDMA devices need it");
    if (node_.memlock == kNoNumber || node_.memlock >= kPinnedMin) {
      return Report("memlock", Health::kOk,
                    node_.memlock == kNoNumber ? "no limit" : BytesInWords(node_.memlock));
    }
    Report("memlock", Health::kFail,
           absl::StrCat("RDMA devices are there and only ", BytesInWords(node_.memlock),
                        " may be locked: NCCL ends with \"Cannot allocate memory\"; set memlock "
                        "unlimited (ulimit -l, limits.conf, docker --ulimit memlock=-1)"));
  }

  void CheckProcesses() {
    if (node_.processes_left != kNoNumber && node_.processes_left < kProcessesLeftMin) {
      return Report(
          "processes", Health::kWarning,
          absl::StrCat("the cgroup has room for ", node_.processes_left,
                       " more processes and threads (pids.max); each worker needs hundreds: "
                       "raise it (docker --pids-limit, podPidsLimit)"));
    }
    if (node_.processes != kNoNumber && node_.processes < kProcessesMin) {
      return Report("processes", Health::kWarning,
                    absl::StrCat("this user may have ", node_.processes,
                                 " processes and threads in all; ulimit -u ", kProcessesMin,
                                 " or more before ddprun"));
    }
    Report("processes", Health::kOk, "enough for workers and loaders");
  }

  void CheckShm() {
    const char* use = "NCCL and DataLoader's workers keep data there";
    const char* more =
        "docker run --shm-size 8g or --ipc=host; in Kubernetes an emptyDir with medium: Memory";
    if (node_.shm_bytes == kNoNumber) {
      return Report("shm", Health::kFail,
                    absl::StrCat("/dev/shm is not there or cannot be written to; ", use,
                                 ": mount a tmpfs on it"));
    }
    if (node_.shm_free < kShmFail) {
      return Report(
          "shm", Health::kFail,
          absl::StrCat("/dev/shm has ", BytesInWords(node_.shm_free), " free of ",
                       BytesInWords(node_.shm_bytes), "; ", use, " and end with a bus error: ",
                       node_.shm_bytes < kShmMin ? more
                                                 : "see ls -l /dev/shm, what is left "
                                                   "there of dead programs"));
    }
    if (node_.shm_free < kShmMin) {
      return Report(
          "shm", Health::kWarning,
          absl::StrCat("/dev/shm has ", BytesInWords(node_.shm_free), " free of ",
                       BytesInWords(node_.shm_bytes), ", which is little; ", use, ": ", more));
    }
    Report("shm", Health::kOk, absl::StrCat("/dev/shm has ", BytesInWords(node_.shm_bytes)));
  }

  void CheckMemory() {
    if (node_.memory_free == kNoNumber) return;
    const std::int64_t needed = kMemoryOfWorker * std::max(1, node_.workers);
    const std::string limit =
        node_.memory_limit == kNoNumber
            ? ""
            : absl::StrCat(" of the cgroup's ", BytesInWords(node_.memory_limit));
    if (node_.memory_free < needed) {
      return Report(
          "memory", Health::kWarning,
          absl::StrCat(BytesInWords(node_.memory_free), " free", limit, " for ", node_.workers,
                       " workers: the kernel will kill one; give the job more "
                       "memory, or start fewer workers"));
    }
    Report("memory", Health::kOk,
           absl::StrCat("enough", limit.empty() ? "" : absl::StrCat(", limit", limit.substr(3))));
  }

  void CheckWorkers() {
    if (!node_.workers_error.empty()) return Report("workers", Health::kFail, node_.workers_error);
    if (node_.cpu_quota > 0 && node_.cpu_quota < node_.workers) {
      return Report("workers", Health::kWarning,
                    absl::StrFormat("%d workers share a CPU quota of %.2g CPUs (cpu.max); give the "
                                    "container more, or start fewer workers",
                                    node_.workers, node_.cpu_quota));
    }
    if (node_.gpus > 0 && node_.workers > node_.gpus) {
      return Report("workers", Health::kWarning,
                    absl::StrCat(node_.workers, " workers for ", node_.gpus,
                                 node_.gpus == 1 ? " GPU" : " GPUs",
                                 ": NCCL refuses two workers on one; --nproc-per-node gpu"));
    }
    if (node_.workers > node_.cpus) {
      return Report("workers", Health::kWarning,
                    absl::StrCat(node_.workers, " workers on ", node_.cpus,
                                 " CPUs take turns; start fewer (--nproc-per-node), or give ddprun "
                                 "more CPUs (taskset, cgroup)"));
    }
    Report("workers", Health::kOk,
           absl::StrCat(node_.workers, node_.workers == 1 ? " worker on " : " workers on ",
                        node_.cpus, " CPUs"));
  }

  void CheckKernel() {
    if (node_.overcommit == 2) {
      Report(
          "kernel", Health::kWarning,
          "vm.overcommit_memory is 2: CUDA and forks of large programs reserve more than they use "
          "and get \"Cannot allocate memory\"; sysctl vm.overcommit_memory=0");
    } else {
      Report("kernel", Health::kOk, absl::StrCat("Linux ", node_.kernel));
    }
    if (node_.ptrace_scope >= 2 && !node_.may_ptrace) {
      Report("stacks", Health::kWarning,
             absl::StrCat("kernel.yama.ptrace_scope is ", node_.ptrace_scope,
                          ": a worker that hangs cannot show its stacks; sysctl "
                          "kernel.yama.ptrace_scope=1, or CAP_SYS_PTRACE"));
    } else {
      Report("stacks", Health::kOk, "a worker's can be read");
    }
    Report("cgroup", Health::kOk,
           node_.cgroup ? "one can be made for each round"
                        : "none can be made here; ddprun ends what workers leave by other means");
    Report("core", Health::kOk,
           !node_.core_files
               ? "off (ulimit -c 0)"
               : absl::StrCat("on, to ", node_.core_pattern.empty()
                                             ? "nowhere (kernel.core_pattern is empty)"
                                             : node_.core_pattern));
  }

  void CheckGpu() {
    if (node_.driver.empty() && node_.gpus == 0) return Report("gpu", Health::kOk, "none");
    if (node_.gpus == 0) {
      return Report("gpu", Health::kWarning,
                    absl::StrCat("the driver ", node_.driver,
                                 " is loaded and no GPU is to be seen; in a container: docker run "
                                 "--gpus all, else nvidia-smi says why"));
    }
    Report("gpu", Health::kOk,
           absl::StrCat(node_.gpus, node_.gpus == 1 ? " GPU" : " GPUs",
                        node_.gpu_models.empty()
                            ? ""
                            : absl::StrCat(" (", absl::StrJoin(node_.gpu_models, ", "), ")"),
                        node_.driver.empty() ? "" : absl::StrCat(", driver ", node_.driver)));
  }

 private:
  const NodeFacts& node_;
  std::vector<Finding>& findings_;
};

}  // namespace

void DiagnoseMachines(const Checkup& checkup, std::vector<Finding>& findings) {
  for (const NodeFacts& node : checkup.nodes) {
    Machine machine(node, findings);
    machine.CheckFiles();
    machine.CheckPinned();
    machine.CheckProcesses();
    machine.CheckShm();
    machine.CheckMemory();
    machine.CheckWorkers();
    machine.CheckKernel();
    machine.CheckGpu();
  }
}

}  // namespace ddprun
