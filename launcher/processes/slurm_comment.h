// SPDX-License-Identifier: Apache-2.0
// --slurm-comment: how far the run is, in the comment of its Slurm job, where `squeue -O comment`
// and `scontrol show job` have it. Never in the way of the run: another process calls Slurm.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/processes/side_command.h"

namespace ddprun {

class SlurmComment {
 public:
  // `job`: SLURM_JOB_ID; empty: there is nothing to do.
  explicit SlurmComment(std::string job);

  // Call in each turn of the loop. `text` is asked for when a comment is due, at most once in
  // kSlurmCommentInterval; empty: there is none, as one that has not changed. Returns why Slurm did
  // not take one, the first time.
  std::optional<std::string> OnTurn(const std::function<std::string()>& text,
                                    const sigset_t& signal_mask, Poller& poller, TimePoint now);
  std::optional<TimePoint> NextDeadline() const;
  pid_t pid() const { return command_.pid(); }

 private:
  const std::string job_;
  SideCommand command_;
  TimePoint due_{};
  std::string last_;
  bool failed_ = false;
};

}  // namespace ddprun
