// SPDX-License-Identifier: Apache-2.0
// Checks of a single machine: limits, memory, the kernel, GPUs.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/doctor/doctor_rules.h"

namespace ddprun {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// The usual soft limit. DataLoader's workers and NCCL's connections exhaust a lower one.
constexpr std::int64_t kFilesMin = 1024;
// Each library with a thread pool has a thread per core in each worker and each loader.
constexpr std::int64_t kProcessesMin = 4096;
constexpr std::int64_t kProcessesLeftMin = 1024;
// Less cannot hold one batch of images of a few loaders, or NCCL's buffers of two workers.
constexpr std::int64_t kShmFail = 32 * kMiB;
// Above the default of Docker and Kubernetes (64 MiB), which is often too small.
constexpr std::int64_t kShmMin = 256 * kMiB;
// About what LibTorch uses after its first computation.
constexpr std::int64_t kMemoryOfWorker = 512 * kMiB;
// RDMA pins whole communication buffers.
constexpr std::int64_t kPinnedMin = 1024 * kMiB;

void CheckFiles(const NodeFacts& node, Findings& findings) {
  if (node.nofile != kNoNumber && node.nofile < kFilesMin) {
    return findings.Warn("nofile", {node.node}, "workers may open ", node.nofile,
                         " files each (\"Too many open files\"); ulimit -n ", kFilesMin,
                         " or more before ddprun",
                         node.nofile_hard != kNoNumber && node.nofile_hard < kFilesMin
                             ? ", and nofile in /etc/security/limits.conf"
                             : "");
  }
  findings.Ok("nofile", {node.node},
              node.nofile == kNoNumber ? "no limit" : absl::StrCat(node.nofile, " files a worker"));
}

void CheckPinned(const NodeFacts& node, Findings& findings) {
  if (!node.rdma) return findings.Ok("memlock", {node.node}, "not needed without RDMA devices");
  if (node.memlock == kNoNumber || node.memlock >= kPinnedMin) {
    return findings.Ok("memlock", {node.node},
                       node.memlock == kNoNumber ? "no limit" : BytesInWords(node.memlock));
  }
  findings.Fail("memlock", {node.node}, "RDMA devices are there and only ",
                BytesInWords(node.memlock),
                " may be locked: NCCL ends with \"Cannot allocate memory\"; set memlock "
                "unlimited (ulimit -l, limits.conf, docker --ulimit memlock=-1)");
}

void CheckProcesses(const NodeFacts& node, Findings& findings) {
  if (node.processes_left != kNoNumber && node.processes_left < kProcessesLeftMin) {
    return findings.Warn("processes", {node.node}, "the cgroup has room for ", node.processes_left,
                         " more processes and threads (pids.max); each worker needs hundreds: "
                         "raise it (docker --pids-limit, podPidsLimit)");
  }
  if (node.processes != kNoNumber && node.processes < kProcessesMin) {
    return findings.Warn("processes", {node.node}, "this user may have ", node.processes,
                         " processes and threads in all; ulimit -u ", kProcessesMin,
                         " or more before ddprun");
  }
  findings.Ok("processes", {node.node}, "enough for workers and loaders");
}

void CheckShm(const NodeFacts& node, Findings& findings) {
  const char* use = "NCCL and DataLoader's workers keep data there";
  const char* more =
      "docker run --shm-size 8g or --ipc=host; in Kubernetes an emptyDir with medium: Memory";
  if (node.shm_bytes == kNoNumber) {
    return findings.Fail("shm", {node.node}, "/dev/shm is not there or cannot be written to; ", use,
                         ": mount a tmpfs on it");
  }
  if (node.shm_free < kShmFail) {
    return findings.Fail("shm", {node.node}, "/dev/shm has ", BytesInWords(node.shm_free),
                         " free of ", BytesInWords(node.shm_bytes), "; ", use,
                         " and end with a bus error: ",
                         node.shm_bytes < kShmMin ? more
                                                  : "see ls -l /dev/shm for files that dead "
                                                    "programs left there");
  }
  if (node.shm_free < kShmMin) {
    return findings.Warn("shm", {node.node}, "/dev/shm has ", BytesInWords(node.shm_free),
                         " free of ", BytesInWords(node.shm_bytes), ", which is little; ", use,
                         ": ", more);
  }
  findings.Ok("shm", {node.node}, "/dev/shm has ", BytesInWords(node.shm_bytes));
}

void CheckMemory(const NodeFacts& node, Findings& findings) {
  if (node.memory_free == kNoNumber) return;
  const std::int64_t needed = kMemoryOfWorker * std::max(1, node.workers);
  const std::string limit =
      node.memory_limit == kNoNumber
          ? ""
          : absl::StrCat(" of the cgroup's ", BytesInWords(node.memory_limit));
  if (node.memory_free < needed) {
    return findings.Warn("memory", {node.node}, BytesInWords(node.memory_free), " free", limit,
                         " for ", node.workers,
                         " workers: the kernel will kill one; give the job more "
                         "memory, or start fewer workers");
  }
  findings.Ok("memory", {node.node}, "enough",
              limit.empty() ? "" : absl::StrCat(", limit", limit.substr(3)));
}

void CheckWorkers(const NodeFacts& node, Findings& findings) {
  if (!node.workers_error.empty()) return findings.Fail("workers", {node.node}, node.workers_error);
  if (node.cpu_quota > 0 && node.cpu_quota < node.workers) {
    return findings.Warn(
        "workers", {node.node},
        absl::StrFormat("%d workers share a CPU quota of %.2g CPUs (cpu.max); give the "
                        "container more, or start fewer workers",
                        node.workers, node.cpu_quota));
  }
  if (node.gpus > 0 && node.workers > node.gpus) {
    return findings.Warn("workers", {node.node}, node.workers, " workers for ", node.gpus,
                         node.gpus == 1 ? " GPU" : " GPUs",
                         ": NCCL refuses two workers on one; --nproc-per-node gpu");
  }
  if (node.workers > node.cpus) {
    return findings.Warn("workers", {node.node}, node.workers, " workers on ", node.cpus,
                         " CPUs take turns; start fewer (--nproc-per-node), or give ddprun "
                         "more CPUs (taskset, cgroup)");
  }
  findings.Ok("workers", {node.node}, node.workers,
              node.workers == 1 ? " worker on " : " workers on ", node.cpus, " CPUs");
}

void CheckKernel(const NodeFacts& node, Findings& findings) {
  if (node.overcommit == 2) {
    findings.Warn(
        "kernel", {node.node},
        "vm.overcommit_memory is 2: CUDA and forks of large programs reserve more than they use "
        "and get \"Cannot allocate memory\"; sysctl vm.overcommit_memory=0");
  } else {
    findings.Ok("kernel", {node.node}, "Linux ", node.kernel);
  }
  if (node.ptrace_scope >= 2 && !node.may_ptrace) {
    findings.Warn("stacks", {node.node}, "kernel.yama.ptrace_scope is ", node.ptrace_scope,
                  ": a worker that hangs cannot show its stacks; sysctl "
                  "kernel.yama.ptrace_scope=1, or CAP_SYS_PTRACE");
  } else {
    findings.Ok("stacks", {node.node}, "can be read from a worker that hangs");
  }
  findings.Ok("cgroup", {node.node},
              node.cgroup ? "can be made for each round"
                          : "none can be made here; ddprun ends left-over processes without it");
  findings.Ok("core", {node.node},
              !node.core_files
                  ? "off (ulimit -c 0)"
                  : absl::StrCat("on, to ", node.core_pattern.empty()
                                                ? "nowhere (kernel.core_pattern is empty)"
                                                : node.core_pattern));
}

void CheckGpu(const NodeFacts& node, Findings& findings) {
  if (node.driver.empty() && node.gpus == 0) return findings.Ok("gpu", {node.node}, "none");
  if (node.gpus == 0) {
    return findings.Warn("gpu", {node.node}, "the driver ", node.driver,
                         " is loaded, but no GPU is visible; in a container: docker run "
                         "--gpus all, else see nvidia-smi");
  }
  findings.Ok(
      "gpu", {node.node}, node.gpus, node.gpus == 1 ? " GPU" : " GPUs",
      node.gpu_models.empty() ? "" : absl::StrCat(" (", absl::StrJoin(node.gpu_models, ", "), ")"),
      node.driver.empty() ? "" : absl::StrCat(", driver ", node.driver));
}

}  // namespace

void DiagnoseMachines(const Checkup& checkup, Findings& findings) {
  for (const NodeFacts& node : checkup.nodes) {
    for (const auto check : {CheckFiles, CheckPinned, CheckProcesses, CheckShm, CheckMemory,
                             CheckWorkers, CheckKernel, CheckGpu})
      check(node, findings);
  }
}

}  // namespace ddprun
