// SPDX-License-Identifier: Apache-2.0
// The fork server of --preload: a Python of this node that has imported modules, and from which the
// workers are forked in milliseconds instead of importing them themselves. Its program is
// fork_server.py. A worker that it has forked is this process's child, like one of SpawnProcess().
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/base/limits.h"
#include "launcher/placement/cpu_binding.h"
#include "launcher/processes/program.h"
#include "launcher/processes/spawn.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// ---- The request for a worker (pure)

// What fork_server.py reads: items that begin with a letter and end with '\0'. a: argument, e:
// NAME=VALUE, c: CPUs, m: a memory policy (the system call and its arguments).
std::string EncodeForkRequest(const SpawnRequest& request,
                              const std::optional<MemoryPolicy>& memory);

// Whether the server's libraries have read the same values as those of a worker with that
// environment would.
bool ReadsTheSame(const std::vector<std::string>& server_environ,
                  const std::vector<std::string>& worker_environ);

// ---- The server

struct ForkServerPlan {
  std::vector<std::string> modules;
  Program program;                   // of the workers
  std::vector<std::string> environ;  // what is the same for all workers
  std::string folder;                // is made for fork_server.py
  sigset_t signal_mask;              // of the workers
  rlimit file_limit;                 // likewise
};

// Threadsafe.
class ForkServer {
 public:
  // Starts it in the background. `wake` is called when TakeNotes() has something.
  static std::shared_ptr<ForkServer> Start(ForkServerPlan plan, std::function<void()> wake);

  // It is still importing its modules.
  bool IsLoading() const;
  // 0: there is no process.
  pid_t pid() const;

  // Forks a worker, once the modules are imported. Absent: start it without the server;
  // `is_cancelled` is asked meanwhile and ends the wait. After a failure the server is not used any
  // more.
  std::optional<Spawned> Fork(const SpawnRequest& request,
                              const std::function<bool()>& is_cancelled);

  // Sentences for the console: what its modules have printed, and why it is not used any more.
  std::vector<std::string> TakeNotes();

  // Ends it. The parent-death signal does that too, when this process ends.
  void Stop();

 private:
  enum class Phase { kLoading, kReady, kFailed };

  ForkServer(ForkServerPlan plan, std::function<void()> wake)
      : plan_(std::move(plan)), wake_(std::move(wake)) {}

  // ---- On the thread that starts it and lives as long as it does
  void Run();
  absl::Status StartProcess();
  absl::Status Load();
  std::string WaitForEnd();
  std::string DescribeEnd() const;
  void ReadOutput();
  std::string LastLine() const;
  void SetReady();

  // ---- On other threads
  bool WaitUntilReady(const std::function<bool()>& is_cancelled);
  absl::StatusOr<Spawned> Ask(const SpawnRequest& request);
  void Fail(const std::string& sentence);

  const ForkServerPlan plan_;
  const std::function<void()> wake_;
  // By then it is ready.
  const std::chrono::steady_clock::time_point deadline_ =
      std::chrono::steady_clock::now() + kPreloadTimeout;
  Spawned process_;  // of the thread
  OwnedFd output_;   // likewise: what its modules print
  std::string text_;
  OwnedFd socket_;  // for the requests; stays open, so that its number stays this one's

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::kLoading;
  bool stopping_ = false;
  pid_t pid_ = 0;  // not reaped
  std::vector<std::string> notes_;
};

}  // namespace ddprun
