// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr OutputStream kStreams[] = {OutputStream::kOut, OutputStream::kErr};

const char* StreamName(OutputStream stream) {
  return stream == OutputStream::kOut ? "stdout" : "stderr";
}

// The run's name comes from the service and must not lead out of the log folder.
std::string FolderName(std::string run_id) {
  std::replace(run_id.begin(), run_id.end(), '/', '_');
  return run_id.empty() || run_id == "." || run_id == ".." ? "_" + run_id : run_id;
}

std::string RoundLogFolder(const LogRound& round) {
  return absl::StrCat(RunLogFolder(round), "/round_", round.round);
}

std::string Prefix(const LogOptions& options, const LogRound& round, int local_rank) {
  const int rank = round.rank_first + local_rank;
  const std::string role =
      round.roles.empty() ? round.role : round.roles[static_cast<std::size_t>(local_rank)];
  if (options.line_prefix == kTorchrunPrefix) {
    const bool tee = options.tee.Has(local_rank, OutputStream::kOut) ||
                     options.tee.Has(local_rank, OutputStream::kErr);
    return tee ? absl::StrCat("[", role, local_rank, "]:") : "";
  }
  if (options.line_prefix.has_value()) {
    // The template was checked when the flags were read.
    return FillPrefix(
               *options.line_prefix,
               {.role_name = role, .local_rank = local_rank, .rank = rank, .hostname = round.host})
        .value_or("");
  }
  return absl::StrCat("[", round.node_count > 1 ? round.host + ":" : "", rank,
                      round.roles.empty() ? "" : " " + role, "] ");
}

StreamPlan PlanStream(const LogOptions& options, const LogRound& round, int local_rank,
                      OutputStream stream) {
  StreamPlan plan;
  const bool shown = options.local_ranks.empty() || options.local_ranks.count(local_rank) != 0;
  const bool tee = options.tee.Has(local_rank, stream);
  const bool redirect = options.redirects.Has(local_rank, stream);
  const bool files = !round.log_dir.empty();
  if (files && (round.log_dir_is_chosen || tee || redirect)) {
    plan.file = absl::StrCat(RankLogFolder(round, local_rank), "/", StreamName(stream), ".log");
  }
  // Without files a redirected stream stays on the console, as in torchrun.
  plan.on_console = shown && (tee || !redirect || !files);
  const std::vector<std::string>& filters =
      stream == OutputStream::kOut ? options.out_filters : options.err_filters;
  plan.filtered = files && !filters.empty() && (tee || options.tee.IsEmpty());
  return plan;
}

FilterPlan PlanFilter(const std::vector<std::string>& texts, const LogRound& round,
                      OutputStream stream) {
  FilterPlan plan;
  if (texts.empty() || round.log_dir.empty()) return plan;
  plan.texts = texts;
  // Nodes may share the folder, and two processes must not write to one file.
  const std::string node = round.node_count > 1 ? absl::StrCat(".node_", round.node_rank) : "";
  plan.file = absl::StrCat(RoundLogFolder(round), "/filtered_", StreamName(stream), node, ".log");
  return plan;
}

}  // namespace

bool WantsNoFiles(const LogOptions& options) { return options.log_dir == "/dev/null"; }

bool NeedsTemporaryLogDir(const LogOptions& options) {
  return options.log_dir.empty() && !(options.redirects.IsEmpty() && options.tee.IsEmpty() &&
                                      options.out_filters.empty() && options.err_filters.empty());
}

std::string RunLogFolder(const LogRound& round) {
  return absl::StrCat(round.log_dir, "/", FolderName(round.run_id));
}

std::string RankLogFolder(const LogRound& round, int local_rank) {
  return absl::StrCat(RoundLogFolder(round), "/rank_", round.rank_first + local_rank);
}

LogPlan PlanLogs(const LogOptions& options, const LogRound& round) {
  LogPlan plan;
  plan.round = round.round;
  for (int local_rank = 0; local_rank < round.local_world_size; ++local_rank) {
    WorkerPlan worker;
    worker.rank = round.rank_first + local_rank;
    worker.prefix = Prefix(options, round, local_rank);
    for (const OutputStream stream : kStreams)
      worker.Of(stream) = PlanStream(options, round, local_rank, stream);
    if (!worker.out.file.empty() || !worker.err.file.empty())
      worker.record_file = absl::StrCat(RankLogFolder(round, local_rank), "/error.json");
    plan.workers.push_back(std::move(worker));
  }
  plan.out_filter = PlanFilter(options.out_filters, round, OutputStream::kOut);
  plan.err_filter = PlanFilter(options.err_filters, round, OutputStream::kErr);
  plan.rotation = options.rotation;
  plan.fold_prefix = round.node_count > 1 ? absl::StrCat(round.host, ":") : "";
  return plan;
}

}  // namespace ddprun
