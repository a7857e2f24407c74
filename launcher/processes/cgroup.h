// SPDX-License-Identifier: Apache-2.0
// A cgroup (version 2) for each round's workers, if it can be created: as root, in a delegated part
// of systemd's tree, or in a container with write access. The kernel then tracks every process of
// the round and kills all at once. Optional: without cgroups these functions do nothing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/owned_fd.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// The folder of this process's cgroup; empty without cgroup version 2. Its memory.events include
// the workers.
std::string OwnCgroup();

// The cgroup of one run on this machine, with one child for each round.
class RunCgroup {
 public:
  // No cgroup.
  RunCgroup() = default;

  // Makes `<parent>/ddprun-<name>`, locked by this process and its forks. Sibling folders without a
  // lock, whose ddprun was killed, are removed with the processes that are left in them. Empty if
  // it cannot be created.
  static RunCgroup Make(const std::string& parent, const std::string& name);

  bool exists() const { return !path_.empty(); }
  const std::string& path() const { return path_; }

  // Creates a folder for the round's workers; empty if it cannot be created. With the memory
  // controller, its memory.events count this round alone.
  std::string MakeRound(RoundId round) const;

  // Sends SIGKILL to all processes in it. Returns before they have ended.
  void Kill() const;

  // Removes it and its rounds, unless they contain processes.
  void Remove() const;

 private:
  std::string path_;
  OwnedFd lock_;
};

// The same for one round's folder; an empty path does nothing.
void KillCgroup(const std::string& path);
void RemoveCgroup(const std::string& path);

// The cgroup in which a node's workers live. One that was killed is never used again: the kernel
// also kills whatever is started in it later (Linux 6.18).
class WorkerCgroup {
 public:
  // For new workers; empty: they are started in no cgroup of their own.
  const std::string& path() const { return path_; }
  void Enter(std::string path) { path_ = std::move(path); }
  // For SpawnRequest; not valid: there is none.
  OwnedFd Open() const;

  // Sends SIGKILL to all processes in it, and in those that were killed before.
  void Kill();
  // Removes those that were killed, and without `keep` this one too, unless they contain processes.
  void Remove(bool keep);

 private:
  std::string path_;
  std::vector<std::string> killed_;
};

}  // namespace ddprun
