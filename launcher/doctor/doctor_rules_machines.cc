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

Judgement Files(const NodeFacts& node) {
  if (node.nofile == kNoNumber) return Ok("no limit");
  if (node.nofile >= kFilesMin) return Ok(node.nofile, " files a worker");
  const bool raise_hard = node.nofile_hard != kNoNumber && node.nofile_hard < kFilesMin;
  return Warn("workers may open ", node.nofile, " files each (\"Too many open files\"); ulimit -n ",
              kFilesMin, " or more before ddprun",
              raise_hard ? ", and nofile in /etc/security/limits.conf" : "");
}

Judgement Pinned(const NodeFacts& node) {
  if (!node.rdma) return Ok("not needed without RDMA devices");
  if (node.memlock == kNoNumber) return Ok("no limit");
  if (node.memlock >= kPinnedMin) return Ok(BytesText(node.memlock));
  return Fail("RDMA devices are there and only ", BytesText(node.memlock),
              " may be locked: NCCL ends with \"Cannot allocate memory\"; set memlock unlimited "
              "(ulimit -l, limits.conf, docker --ulimit memlock=-1)");
}

Judgement Processes(const NodeFacts& node) {
  if (node.processes_left != kNoNumber && node.processes_left < kProcessesLeftMin) {
    return Warn("the cgroup has room for ", node.processes_left,
                " more processes and threads (pids.max); each worker needs hundreds: raise it "
                "(docker --pids-limit, podPidsLimit)");
  }
  if (node.processes != kNoNumber && node.processes < kProcessesMin) {
    return Warn("this user may have ", node.processes, " processes and threads in all; ulimit -u ",
                kProcessesMin, " or more before ddprun");
  }
  return Ok("enough for workers and loaders");
}

Judgement Shm(const NodeFacts& node) {
  const char* use = "NCCL and DataLoader's workers keep data there";
  const char* more =
      "docker run --shm-size 8g or --ipc=host; in Kubernetes an emptyDir with medium: Memory";
  if (node.shm_bytes == kNoNumber) {
    return Fail("/dev/shm is not there or cannot be written to; ", use, ": mount a tmpfs on it");
  }
  const std::string room = absl::StrCat("/dev/shm has ", BytesText(node.shm_free), " free of ",
                                        BytesText(node.shm_bytes));
  if (node.shm_free < kShmFail) {
    return Fail(room, "; ", use, " and end with a bus error: ",
                node.shm_bytes < kShmMin
                    ? more
                    : "see ls -l /dev/shm for files that dead programs left there");
  }
  if (node.shm_free < kShmMin) return Warn(room, ", which is little; ", use, ": ", more);
  return Ok("/dev/shm has ", BytesText(node.shm_bytes));
}

Judgement Memory(const NodeFacts& node) {
  if (node.memory_free == kNoNumber) return {};
  const std::string limit = BytesText(node.memory_limit);
  const bool limited = node.memory_limit != kNoNumber;
  if (node.memory_free < kMemoryOfWorker * std::max(1, node.workers)) {
    return Warn(BytesText(node.memory_free), " free",
                limited ? absl::StrCat(" of the cgroup's ", limit) : "", " for ", node.workers,
                " workers: the kernel will kill one; give the job more memory, or start fewer "
                "workers");
  }
  return Ok("enough", limited ? absl::StrCat(", limit the cgroup's ", limit) : "");
}

Judgement Workers(const NodeFacts& node) {
  if (!node.workers_error.empty()) return Fail(node.workers_error);
  if (node.cpu_quota > 0 && node.cpu_quota < node.workers) {
    return Warn(node.workers, " workers share a CPU quota of ",
                absl::StrFormat("%.2g", node.cpu_quota),
                " CPUs (cpu.max); give the container more, or start fewer workers");
  }
  if (node.gpus > 0 && node.workers > node.gpus) {
    return Warn(node.workers, " workers for ", Counted(node.gpus, "GPU"),
                ": NCCL refuses two workers on one; --nproc-per-node gpu");
  }
  if (node.workers > node.cpus) {
    return Warn(node.workers, " workers on ", node.cpus,
                " CPUs take turns; start fewer (--nproc-per-node), or give ddprun more CPUs "
                "(taskset, cgroup)");
  }
  return Ok(Counted(node.workers, "worker"), " on ", node.cpus, " CPUs");
}

Judgement Kernel(const NodeFacts& node) {
  if (node.overcommit != 2) return Ok("Linux ", node.kernel);
  return Warn(
      "vm.overcommit_memory is 2: CUDA and forks of large programs reserve more than they use and "
      "get \"Cannot allocate memory\"; sysctl vm.overcommit_memory=0");
}

Judgement Stacks(const NodeFacts& node) {
  if (node.ptrace_scope < 2 || node.may_ptrace) return Ok("can be read from a worker that hangs");
  return Warn("kernel.yama.ptrace_scope is ", node.ptrace_scope,
              ": a worker that hangs cannot show its stacks; sysctl kernel.yama.ptrace_scope=1, or "
              "CAP_SYS_PTRACE");
}

Judgement Cgroup(const NodeFacts& node) {
  return Ok(node.cgroup ? "can be made for each round"
                        : "none can be made here; ddprun ends left-over processes without it");
}

Judgement Core(const NodeFacts& node) {
  if (!node.core_files) return Ok("off (ulimit -c 0)");
  return Ok("on, to ", node.core_pattern.empty() ? "nowhere (kernel.core_pattern is empty)"
                                                 : node.core_pattern);
}

Judgement Gpu(const NodeFacts& node) {
  if (node.driver.empty() && node.gpus == 0) return Ok("none");
  if (node.gpus == 0) {
    return Warn("the driver ", node.driver,
                " is loaded, but no GPU is visible; in a container: docker run --gpus all, else "
                "see nvidia-smi");
  }
  return Ok(
      Counted(node.gpus, "GPU"),
      node.gpu_models.empty() ? "" : absl::StrCat(" (", absl::StrJoin(node.gpu_models, ", "), ")"),
      node.driver.empty() ? "" : absl::StrCat(", driver ", node.driver));
}

constexpr struct {
  const char* check;
  Judgement (*judge)(const NodeFacts&);
} kMachineChecks[] = {{"nofile", Files},  {"memlock", Pinned}, {"processes", Processes},
                      {"shm", Shm},       {"memory", Memory},  {"workers", Workers},
                      {"kernel", Kernel}, {"stacks", Stacks},  {"cgroup", Cgroup},
                      {"core", Core},     {"gpu", Gpu}};

}  // namespace

void DiagnoseMachines(const Checkup& checkup, Findings& findings) {
  for (const NodeFacts& node : checkup.nodes) {
    for (const auto& [check, judge] : kMachineChecks) findings.Add(check, {node.node}, judge(node));
  }
}

}  // namespace ddprun
