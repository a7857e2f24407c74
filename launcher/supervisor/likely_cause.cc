// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/likely_cause.h"

#include <csignal>
#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ddprun {
namespace {

using Room = EndEvidence::Room;

constexpr std::int64_t kMiB = 1 << 20;

// Less than a page cache's worth: what was being written has been given back partly by now.
bool IsFull(const std::optional<Room>& room) {
  return room.has_value() && (room->free_bytes < kMiB ||
                              room->free_bytes < room->total_bytes / 100 || !room->has_inodes);
}

// What Python, C++ and the shell call it.
bool Says(const Failure& failure, std::initializer_list<const char*> phrases) {
  const auto has = [&](const std::string& text) {
    for (const char* phrase : phrases) {
      if (absl::StrContains(text, phrase)) return true;
    }
    return false;
  };
  if (has(failure.message) || has(failure.traceback)) return true;
  for (const std::string& line : failure.last_lines) {
    if (has(line)) return true;
  }
  return false;
}

std::string ShmIsFull(const Room& shm) {
  return absl::StrCat("/dev/shm (", shm.total_bytes / kMiB,
                      " MiB) is full: give the container more (docker --shm-size, in Kubernetes an "
                      "emptyDir with medium Memory at /dev/shm), or use fewer loader processes");
}

std::string CauseOfKill(const Failure& failure, const EndEvidence& evidence) {
  if (failure.oom.has_value()) {
    return failure.oom->of_cgroup
               ? "give the job more memory, or use less: fewer loader processes, smaller batches"
               : "the machine has no more memory: use less of it";
  }
  // The kernel looks once a second.
  if (evidence.cpu_seconds && evidence.cpu_seconds_limit &&
      *evidence.cpu_seconds + 1 >= *evidence.cpu_seconds_limit) {
    return absl::StrFormat(
        "it had used %.0f s of CPU time, and `ulimit -t` is %.0f: raise that limit",
        *evidence.cpu_seconds, *evidence.cpu_seconds_limit);
  }
  return absl::StrCat(
      "ddprun did not send this SIGKILL: if no person did, look for the kernel's out-of-memory "
      "killer with `dmesg` on ",
      failure.host);
}

std::string CauseOfSignal(const Failure& failure, const EndEvidence& evidence) {
  switch (failure.signal) {
    case SIGKILL:
      return CauseOfKill(failure, evidence);
    case SIGXCPU:
      return "its CPU time reached `ulimit -t`: raise that limit";
    case SIGXFSZ:
      return evidence.file_limit
                 ? absl::StrCat("a file that it wrote reached `ulimit -f` (",
                                *evidence.file_limit / kMiB, " MiB): raise that limit")
                 : "a file that it wrote reached `ulimit -f`: raise that limit";
    case SIGBUS:
      if (IsFull(evidence.shm)) return ShmIsFull(*evidence.shm);
      return "SIGBUS is mostly shared memory or a mapped file that is shorter than it was: was "
             "/dev/shm full (df /dev/shm), or a file cut short while it was read?";
    case SIGSEGV:
    case SIGABRT:
    case SIGFPE:
    case SIGILL:
      // Its own words come first where there are some.
      if (!evidence.is_python || Says(failure, {"Fatal Python error", "bad_alloc"})) return "";
      return "with PYTHONFAULTHANDLER=1 Python prints where it was";
    default:
      return "";
  }
}

std::string CauseOfNoSpace(const EndEvidence& evidence) {
  if (IsFull(evidence.shm)) return ShmIsFull(*evidence.shm);
  if (IsFull(evidence.tmp)) {
    return absl::StrCat(evidence.tmp_folder, " is full",
                        evidence.tmp->has_inodes ? "" : " (no more inodes)",
                        ": remove files there, or set TMPDIR to a larger folder");
  }
  return "a file system is full, or was: see `df -h` and `df -i` for those that it writes to";
}

std::string CauseOfNoMemory(const EndEvidence& evidence) {
  if (evidence.memory_limit) {
    return absl::StrCat("`ulimit -v` is ", *evidence.memory_limit / kMiB,
                        " MiB: raise that limit, or use less memory");
  }
  if (evidence.promises_no_more_memory) {
    return "the kernel promises no more memory (vm.overcommit_memory is 2, and Committed_AS has "
           "reached CommitLimit): have that setting changed, or start fewer processes";
  }
  return "";
}

}  // namespace

std::string LikelyCause(const Failure& failure, const EndEvidence& evidence) {
  if (failure.kind == FailureKind::kWorkerSignaled) {
    if (std::string cause = CauseOfSignal(failure, evidence); !cause.empty()) return cause;
  } else if (failure.kind != FailureKind::kWorkerExited) {
    return "";
  }
  if (Says(failure, {"No space left on device"})) return CauseOfNoSpace(evidence);
  if (Says(failure, {"Disk quota exceeded"}))
    return "this user's quota on that file system is used up: see `quota -s`, and remove files";
  if (Says(failure, {"Too many open files"}))
    return "it, or the machine, has no more file descriptors: raise `ulimit -n`, or close files";
  if (Says(failure, {"can't start new thread", "Resource temporarily unavailable"}) &&
      evidence.processes_max) {
    return absl::StrCat("if it could start no thread or process: `ulimit -u` is ",
                        *evidence.processes_max,
                        ", and the limit of the container's processes (pids.max) counts, too");
  }
  // Loader processes of Python get the signal that their parent would.
  if (Says(failure, {"Bus error", "insufficient shared memory"}) && IsFull(evidence.shm))
    return ShmIsFull(*evidence.shm);
  if (Says(failure, {"Cannot allocate memory", "MemoryError", "std::bad_alloc"}))
    return CauseOfNoMemory(evidence);
  return "";
}

}  // namespace ddprun
