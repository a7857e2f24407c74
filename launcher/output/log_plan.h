// SPDX-License-Identifier: Apache-2.0
// Decides where each worker's output of one round goes: files, console, prefixes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/base/output_stream.h"
#include "launcher/options/options.h"

namespace ddprun {

struct StreamPlan {
  std::string file;        // empty: none
  bool on_console = true;  // its lines are shown
  bool filtered = false;   // the filters of its stream apply
};

struct WorkerPlan {
  int rank = 0;
  std::string prefix;  // of each line on the console: "[0] " or "[node-a:0] "
  StreamPlan out;
  StreamPlan err;
  std::string record_file;  // of its failure record, beside its log files; empty: no log files

  StreamPlan& Of(OutputStream stream) { return stream == OutputStream::kOut ? out : err; }
  const StreamPlan& Of(OutputStream stream) const {
    return stream == OutputStream::kOut ? out : err;
  }
};

struct FilterPlan {
  std::vector<std::string> texts;
  std::string file;  // empty: none
};

struct LogPlan {
  std::uint64_t round = 0;
  std::vector<WorkerPlan> workers;  // by local rank
  FilterPlan out_filter;
  FilterPlan err_filter;
  LogRotation rotation;
  std::string fold_prefix;  // before "ranks 0-3: "
};

// The properties of the round that logs need.
struct LogRound {
  std::string log_dir;             // the given one, or a new temporary one; empty: none
  bool log_dir_is_chosen = false;  // the user gave it: every stream has a file in it
  std::string run_id;
  std::string host;
  std::string role;
  std::vector<std::string> roles;  // by local rank, where workers may have several; else empty
  std::uint64_t round = 0;
  int node_rank = 0;
  int node_count = 1;
  int rank_first = 0;
  int local_world_size = 1;
};

// --log-dir /dev/null means no files, as in torchrun.
bool WantsNoFiles(const LogOptions& options);

// True if files are requested without a folder: one must be created.
bool NeedsTemporaryLogDir(const LogOptions& options);

// The folder of all logs of a run.
std::string RunLogFolder(const LogRound& round);
// The folder of a worker's logs.
std::string RankLogFolder(const LogRound& round, int local_rank);

LogPlan PlanLogs(const LogOptions& options, const LogRound& round);

}  // namespace ddprun
