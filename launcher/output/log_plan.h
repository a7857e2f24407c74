// SPDX-License-Identifier: Apache-2.0
// What becomes of each worker's output in one round: files, the console, prefixes. Pure: flags and
// the round in, names out.
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
  bool filtered = false;   // its lines are looked at by the filters of its stream
};

struct WorkerPlan {
  int rank = 0;
  std::string prefix;  // of each line on the console: "[0] " or "[node-a:0] "
  StreamPlan out;
  StreamPlan err;
  std::string record_file;  // beside its log files: why it failed; empty: it has no log files

  StreamPlan& Of(OutputStream stream) { return stream == OutputStream::kOut ? out : err; }
  const StreamPlan& Of(OutputStream stream) const {
    return stream == OutputStream::kOut ? out : err;
  }
};

struct FilterPlan {
  std::vector<std::string> texts;
  std::string file;  // empty: none is asked for
};

struct LogPlan {
  std::uint64_t round = 0;
  std::vector<WorkerPlan> workers;  // by local rank
  FilterPlan out_filter;
  FilterPlan err_filter;
  LogRotation rotation;
  std::string fold_prefix;  // before "ranks 0-3: "
};

// The round, as far as logs have to know it.
struct LogRound {
  std::string log_dir;             // the one that was given, or a new temporary one; empty: none
  bool log_dir_is_chosen = false;  // a person named it: every stream has its file there
  std::string run_id;
  std::string host;
  std::string role;
  std::uint64_t round = 0;
  int node_rank = 0;
  int node_count = 1;
  int rank_first = 0;
  int local_world_size = 1;
};

// --log-dir /dev/null: torchrun's way to say that no file is wanted.
bool WantsNoFiles(const LogOptions& options);

// Files are asked for and no folder is named: one must be made.
bool NeedsTemporaryLogDir(const LogOptions& options);

// Where all logs of a run are.
std::string RunLogFolder(const LogRound& round);
// Where a worker's are.
std::string RankLogFolder(const LogRound& round, int local_rank);

LogPlan PlanLogs(const LogOptions& options, const LogRound& round);

}  // namespace ddprun
