// SPDX-License-Identifier: Apache-2.0
// A cgroup (version 2) of its own for each round's workers, where one can be made: as root, in a
// delegated part of systemd's tree, in a container that may. The kernel then knows every process of
// the round, wherever it has gone, and ends all at once. Nothing depends on it: where it cannot be
// made, what follows is empty and does nothing.
#pragma once

#include <string>

#include "rendezvous/base/owned_fd.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// The folder of this process's cgroup; empty where there is no version 2. Its memory.events count
// what happens to the workers too.
std::string OwnCgroup();

// The folder of one run on this machine, with one more in it for each round.
class RunCgroup {
 public:
  // No cgroup.
  RunCgroup() = default;

  // Makes `<parent>/ddprun-<name>`, held by a lock that this process and those it forks have.
  // Folders beside it without a lock, whose ddpruns were all killed at once, are removed with the
  // processes that are left in them. Empty if it cannot be made.
  static RunCgroup Make(const std::string& parent, const std::string& name);

  bool exists() const { return !path_.empty(); }
  const std::string& path() const { return path_; }

  // A folder for the round's workers; empty if it cannot be made. Its memory.events, where the
  // memory controller is to be had, are those of this round alone.
  std::string MakeRound(RoundId round) const;

  // SIGKILL to all that is in it. Returns before they have ended.
  void Kill() const;

  // With the rounds, where nothing lives in them any more.
  void Remove() const;

 private:
  std::string path_;
  OwnedFd lock_;
};

// The same for one round's folder; an empty path is none.
void KillCgroup(const std::string& path);
void RemoveCgroup(const std::string& path);

}  // namespace ddprun
