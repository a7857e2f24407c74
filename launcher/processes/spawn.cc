// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "launcher/base/int_ranges.h"
#include "launcher/placement/cpu_binding.h"
#include "launcher/processes/fork_server.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {
namespace {

std::string NameOf(const std::string& entry) { return entry.substr(0, entry.find('=')); }

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The data of the child, prepared before it exists: it shares the parent's memory and must not
// allocate.
struct ChildPlan {
  const SpawnRequest& request;
  char* const* argv;
  char* const* environ;
  const CpuBinding& binding;
  const rlimit& file_limit;
  pid_t parent;
  bool joins_cgroup;      // it does not start in request.cgroup
  volatile int error;     // set by the child if exec fails
  volatile bool unbound;  // the CPU binding failed
};

// Closes all descriptors from 3 on with exec(), in the vfork child: system calls only.
void CloseWithExec() {
  if (syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
  // Before Linux 5.11, or forbidden: /proc lists those that are open.
  const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  alignas(dirent64) char entries[4096];
  long size = 0;
  while ((size = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0) {
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      int fd = 0;
      for (const char* digit = entry->d_name; *digit >= '0' && *digit <= '9'; ++digit)
        fd = fd * 10 + (*digit - '0');
      if (fd > STDERR_FILENO) fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
  }
}

// The same as CLONE_INTO_CGROUP where the kernel or a container's filter refuses clone3.
void JoinCgroup(int cgroup) {
  const int file = openat(cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t size = write(file, "0", 1);
  close(file);
}

// Runs in the vfork child. System calls only; posix_spawn() has no parent-death signal.
[[noreturn]] void RunChild(ChildPlan& plan) {
  prctl(PR_SET_PDEATHSIG, plan.request.death_signal);
  // If Yama restricts ptrace to ancestors (the default of many distributions), this lets the
  // agent's other children read the stacks. It persists across exec.
  prctl(PR_SET_PTRACER, plan.parent);
  // The agent may have died before the line above.
  if (getppid() != plan.parent) _exit(127);
  setsid();
  if (plan.joins_cgroup) JoinCgroup(plan.request.cgroup);
  if (plan.request.in >= 0) dup2(plan.request.in, STDIN_FILENO);
  dup2(plan.request.out, STDOUT_FILENO);
  dup2(plan.request.err, STDERR_FILENO);
  // A worker must not keep the agent's sockets open. Affects this process's own table only.
  CloseWithExec();
  setrlimit(RLIMIT_NOFILE, &plan.file_limit);
  if (!plan.binding.Apply()) {
    plan.unbound = true;
    plan.error = errno;
    _exit(127);
  }
  // Handlers are reset by exec, ignored signals are not. Signals that were ignored when ddprun was
  // started (nohup) stay ignored.
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  sigprocmask(SIG_SETMASK, &plan.request.signal_mask, nullptr);
  execve(plan.request.path.c_str(), plan.argv, plan.environ);
  plan.error = errno;
  _exit(127);
}

// Not inlined: after vfork the child runs on this frame, which must not contain the caller's
// variables.
[[gnu::noinline]] pid_t VforkAndRun(ChildPlan& plan) {
  const pid_t pid = vfork();
  if (pid == 0) RunChild(plan);
  return pid;
}

// The same, with the child in that cgroup from the start: moving it later makes the kernel wait for
// all processors, up to 6 ms. -1: the kernel refused.
[[gnu::noinline]] pid_t CloneAndRun(ChildPlan& plan, int cgroup) {
  [[maybe_unused]] clone_args arguments{};
  arguments.flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = static_cast<std::uint64_t>(cgroup);
  // Inline: the child would overwrite the return address of a function.
  long pid = -1;
#if defined(__x86_64__)
  asm volatile("syscall"
               : "=a"(pid)
               : "a"(static_cast<long>(SYS_clone3)), "D"(&arguments), "S"(sizeof(arguments))
               : "rcx", "r11", "memory");
#elif defined(__aarch64__)
  register long number asm("x8") = SYS_clone3;
  register long first asm("x0") = reinterpret_cast<long>(&arguments);
  register long second asm("x1") = sizeof(arguments);
  asm volatile("svc 0" : "+r"(first) : "r"(number), "r"(second) : "memory");
  pid = first;
#endif
  if (pid == 0) RunChild(plan);
  return pid < 0 ? -1 : static_cast<pid_t>(pid);
}

// Before Linux 5.3, or in a container that forbids the call.
bool HasNoPidfds(int error) { return error == ENOSYS || error == EPERM; }

// It was not reaped, as an orphan.
bool IsChild(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// The largest argument or variable: there is a limit for each, and one for all together.
std::string WhatIsTooLong(const SpawnRequest& request) {
  std::size_t bytes = 0;
  const std::string* largest = nullptr;
  const auto add = [&](const std::string& entry) {
    bytes += entry.size() + 1 + sizeof(char*);
    if (largest == nullptr || entry.size() > largest->size()) largest = &entry;
  };
  for (const std::string& entry : request.argv) add(entry);
  const std::string* const argument = largest;
  for (const std::string& entry : request.environ) add(entry);
  return absl::StrCat(
      "; arguments and environment have ", bytes / 1024, " KiB, of which ",
      largest == argument ? "an argument" : absl::StrCat("the variable ", NameOf(*largest)),
      " has ", largest->size() / 1024,
      "; Linux allows 128 KiB each, and a quarter of `ulimit -s` together");
}

SpawnFailed ToSpawnFailed(const SpawnRequest& request, int error) {
  const std::string advice = error == ENOEXEC ? "; a script needs a first line such as #!/bin/sh"
                             : error == E2BIG ? WhatIsTooLong(request)
                                              : "";
  return SpawnFailed{error == ENOENT ? 127 : 126,
                     absl::StrCat("cannot start ", request.path, ": ", ErrnoText(error), advice)};
}

SpawnFailed ToBindFailed(const CpuSet& cpus, int error) {
  return SpawnFailed{
      126, absl::StrCat("cannot bind a worker to CPUs ", RangesText(cpus), ": ", ErrnoText(error),
                        "; were they taken away since ddprun was started?")};
}

}  // namespace

Spawned SpawnProcess(const SpawnRequest& request, const rlimit& file_limit) {
  const std::vector<char*> argv = Pointers(request.argv);
  const std::vector<char*> environment = Pointers(request.environ);
  const CpuBinding binding(request.cpus, request.memory_nodes);
  ChildPlan plan{.request = request,
                 .argv = argv.data(),
                 .environ = environment.data(),
                 .binding = binding,
                 .file_limit = file_limit,
                 .parent = getpid(),
                 .joins_cgroup = false,
                 .error = 0,
                 .unbound = false};
  Spawned process;
  // No signal handler of this process may run in the child.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t pid = request.cgroup < 0 ? -1 : CloneAndRun(plan, request.cgroup);
  if (pid < 0) {
    plan.joins_cgroup = request.cgroup >= 0;
    pid = VforkAndRun(plan);
  }
  const int vfork_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    process.outcome = ToSpawnFailed(request, vfork_error);
    return process;
  }
  if (plan.error != 0) {
    waitpid(pid, nullptr, 0);
    process.outcome =
        plan.unbound ? ToBindFailed(request.cpus, plan.error) : ToSpawnFailed(request, plan.error);
    return process;
  }
  process.pid = pid;
  process.pidfd = OwnedFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0u)));
  const int error = errno;
  if (process.pidfd.valid() || (HasNoPidfds(error) && IsChild(pid))) return process;
  kill(-pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  process.outcome = ToSpawnFailed(request, error);
  return process;
}

// ---- The thread

struct Spawner::State {
  struct Batch {
    std::vector<SpawnRequest> requests;
    rlimit file_limit{};
  };
  std::mutex mutex;
  std::condition_variable work;
  std::optional<Batch> batch;
  std::optional<std::vector<Spawned>> result;
  std::function<void()> wake;
  std::shared_ptr<ForkServer> fork_server;
  bool started = false;
  bool stopping = false;
  bool cancelled = false;  // the batch

  bool IsCancelled() {
    const std::lock_guard<std::mutex> lock(mutex);
    return cancelled;
  }

  Spawned StartOne(const SpawnRequest& request, const rlimit& file_limit) {
    std::optional<Spawned> forked;
    if (fork_server != nullptr && !request.wrapped && !IsCancelled())
      forked = fork_server->Fork(request, [this] { return IsCancelled(); });
    if (forked.has_value()) return *std::move(forked);
    if (!IsCancelled()) return SpawnProcess(request, file_limit);
    Spawned spawned;
    spawned.outcome = SpawnFailed{126, "the run ended before the worker was started"};
    return spawned;
  }

  void Run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      work.wait(lock, [this] { return stopping || batch.has_value(); });
      if (stopping) return;
      const Batch next = *std::exchange(batch, std::nullopt);
      std::vector<Spawned> spawned;
      for (const SpawnRequest& request : next.requests) {
        lock.unlock();
        spawned.push_back(StartOne(request, next.file_limit));
        lock.lock();
      }
      result = std::move(spawned);
      wake();
    }
  }
};

Spawner::Spawner(std::function<void()> wake, std::shared_ptr<ForkServer> fork_server)
    : state_(std::make_shared<State>()) {
  state_->wake = std::move(wake);
  state_->fork_server = std::move(fork_server);
}

Spawner::~Spawner() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->stopping = true;
  state_->work.notify_one();
}

void Spawner::Begin(std::vector<SpawnRequest> requests, const rlimit& file_limit) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->result.reset();
  state_->cancelled = false;
  if (!state_->started) {
    const std::error_code error = RunDetached([state = state_] { state->Run(); });
    state_->started = !error;
    if (error) {
      for (Spawned& one : state_->result.emplace(requests.size())) {
        one.outcome = SpawnFailed{
            126, absl::StrCat("cannot start a thread: ", error.message(), "; see `ulimit -u`")};
      }
      return state_->wake();
    }
  }
  state_->batch = State::Batch{std::move(requests), file_limit};
  state_->work.notify_one();
}

void Spawner::Cancel() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->cancelled = true;
}

std::optional<std::vector<Spawned>> Spawner::Take() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return std::exchange(state_->result, std::nullopt);
}

void ProcessSet::Adopt(std::size_t index, Spawned spawned) {
  if (spawned.pid > 0 && !spawned.outcome.has_value() && !IsChild(spawned.pid)) {
    spawned.outcome = Signaled{SIGKILL, false};
    spawned.pidfd.Reset();
  }
  if (processes_.size() <= index) processes_.resize(index + 1);
  processes_[index] = std::move(spawned);
}

std::optional<Outcome> ProcessSet::Look(std::size_t index) const {
  const Spawned& process = processes_[index];
  if (!IsLive(index)) return process.outcome;
  // Nobody else reaps it, so the number is its own.
  const auto id = static_cast<id_t>(process.pid);
  siginfo_t info{};
  if (waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  if (info.si_code == CLD_EXITED) return Exited{info.si_status};
  return Signaled{info.si_status, info.si_code == CLD_DUMPED};
}

bool ProcessSet::ReapIfEnded(std::size_t index, bool spares_group) {
  Spawned& process = processes_[index];
  if (!IsLive(index)) return false;
  // Reaped after the kill: while it is a zombie, its group's number cannot be reused.
  const std::optional<Outcome> outcome = Look(index);
  if (!outcome.has_value()) return false;
  if (!spares_group || !IsSuccess(*outcome)) kill(-process.pid, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG);
  process.outcome = outcome;
  process.pidfd.Reset();
  return true;
}

void ProcessSet::SignalGroup(std::size_t index, int signal) {
  if (IsLive(index)) kill(-processes_[index].pid, signal);
}

void ProcessSet::SignalProcess(std::size_t index, int signal) {
  if (IsLive(index)) kill(processes_[index].pid, signal);
}

}  // namespace ddprun
