// SPDX-License-Identifier: Apache-2.0
// The fork server of --preload: a Python of this node that has imported modules, and from which the
// workers are forked in milliseconds instead of importing them themselves. Its program is
// fork_server.py. A worker that it has forked is this process's child, like one of SpawnProcess().
// If it fails, another one is started, kForkServerFailuresMax times in a row.
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
  std::string folder;                // the start of the names of folders made for fork_server.py
  sigset_t signal_mask;              // of the workers
  rlimit file_limit;                 // likewise
  std::chrono::milliseconds import_timeout = kPreloadTimeout;
};

// Whether a process is the server. Unknown: the server is just being started.
enum class ForkServerMatch { kNo, kYes, kUnknown };

struct ForkServerFailure {
  std::string sentence;
  bool was_ready;  // it had imported its modules
  bool is_final;   // another one would fail as well
};

// One process. Threadsafe.
class ForkServerProcess {
 public:
  // Starts it in the background. `wake` is called when TakeOutput() or TakeFailure() has something.
  static std::shared_ptr<ForkServerProcess> Start(ForkServerPlan plan, std::function<void()> wake);

  // It is still importing its modules.
  bool IsLoading() const;
  ForkServerMatch Matches(pid_t pid) const;

  // As ForkServer::Fork().
  std::optional<Spawned> Fork(const SpawnRequest& request,
                              const std::function<bool()>& is_cancelled);

  // The last lines that its modules have printed while they were imported.
  std::vector<std::string> TakeOutput();
  // Once.
  std::optional<ForkServerFailure> TakeFailure();

  void Stop();

 private:
  enum class Phase { kLoading, kReady, kFailed };

  ForkServerProcess(ForkServerPlan plan, std::function<void()> wake)
      : plan_(std::move(plan)), wake_(std::move(wake)) {}

  // ---- On the thread that starts it and lives as long as it does
  void Run();
  absl::Status StartProcess();
  void SetPid(std::optional<pid_t> pid);
  absl::Status Load();
  absl::Status WaitForEnd();
  absl::Status DescribeEnd() const;
  void ReadOutput();
  std::string LastLine() const;
  void SetReady();

  // ---- On other threads
  bool WaitUntilReady(const std::function<bool()>& is_cancelled);
  absl::StatusOr<Spawned> Ask(const SpawnRequest& request);
  absl::Status TooLate() const;
  void Fail(const absl::Status& status);

  const ForkServerPlan plan_;
  const std::function<void()> wake_;
  // By then it is ready.
  const std::chrono::steady_clock::time_point deadline_ =
      std::chrono::steady_clock::now() + plan_.import_timeout;
  Spawned process_;  // of the thread
  OwnedFd output_;   // likewise: what its modules print
  std::string text_;
  OwnedFd socket_;  // for the requests; stays open, so that its number stays this one's

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::kLoading;
  std::optional<pid_t> pid_ = 0;  // 0: none, or reaped; absent: it is being started
  std::vector<std::string> lines_;
  std::optional<ForkServerFailure> failure_;
};

// The server of a run: one process after another. Threadsafe.
class ForkServer {
 public:
  // Starts it in the background. `wake` is called when TakeNotes() has something to do.
  static std::shared_ptr<ForkServer> Start(ForkServerPlan plan, std::function<void()> wake);

  // Workers that are due wait until its modules are imported.
  bool IsLoading() const;
  ForkServerMatch Matches(pid_t pid) const;

  // Workers of this round wait for a server that is still loading. A server that could not be
  // started for an earlier round is started once more.
  void BeginRound();

  // Forks a worker, once the modules are imported. Absent: start it without the server;
  // `is_cancelled` is asked meanwhile and ends the wait.
  std::optional<Spawned> Fork(const SpawnRequest& request,
                              const std::function<bool()>& is_cancelled);

  // Replaces a process that has failed. Returns sentences for the console: what the modules have
  // printed, why a process has failed, and what follows from it.
  std::vector<std::string> TakeNotes();

  // Ends it. The parent-death signal does that too, when this process ends.
  void Stop();

 private:
  ForkServer(ForkServerPlan plan, std::function<void()> wake)
      : plan_(std::move(plan)), wake_(std::move(wake)) {}

  void StartProcess();
  std::string OnFailure(const ForkServerFailure& failure);

  const ForkServerPlan plan_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::shared_ptr<ForkServerProcess> process_;
  int started_ = 0;
  int failures_ = 0;             // in a row
  bool awaited_ = true;          // by the workers that are due
  bool start_at_round_ = false;  // the next one
  bool printed_ = false;         // what the modules print
  bool stopped_ = false;
};

}  // namespace ddprun
