// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/scheduler_env.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/command_line/slurm_job.h"
#include "launcher/options/run_flags.h"

namespace ddprun {
namespace {

// Below the kernel's ephemeral ports, above the well-known ones.
constexpr int kStepPortFirst = 20'000;
constexpr int kStepPorts = 10'000;

std::optional<int> Number(const GetVariable& get_variable, const char* name) {
  int number = 0;
  if (!absl::SimpleAtoi(get_variable(name).value_or(""), &number) || number < 0)
    return std::nullopt;
  return number;
}

struct Sign {
  const char* variable;  // the size
  const char* also;      // must be set too: without it the size means something else
  const char* of;
  const char* node_rank;  // the variable that numbers the nodes
};

// The batch script of a job runs on one of its nodes; only a step (srun) runs on all.
constexpr Sign kSigns[] = {
    {"SLURM_STEP_NUM_NODES", "SLURM_STEP_ID", "nodes", "SLURM_NODEID"},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "processes", "OMPI_COMM_WORLD_RANK"},
    {"PMI_SIZE", "PMI_RANK", "processes", "PMI_RANK"},
    {"WORLD_SIZE", "KUBERNETES_SERVICE_HOST", "processes", "RANK"},
};

}  // namespace

std::optional<SlurmStep> ReadSlurmStep(const GetVariable& get_variable) {
  const std::optional<int> job = Number(get_variable, "SLURM_JOB_ID");
  const std::optional<std::string> step_id = get_variable("SLURM_STEP_ID");
  const std::optional<int> tasks = Number(get_variable, "SLURM_STEP_NUM_TASKS");
  const std::optional<int> rank = Number(get_variable, "SLURM_PROCID");
  // A batch script has a rank too, but no step.
  long long step_number = 0;
  if (!job.has_value() || !tasks.has_value() || !rank.has_value() || !step_id.has_value() ||
      !absl::SimpleAtoi(*step_id, &step_number) || *tasks < 2 || *tasks > kNodesMax ||
      *rank >= *tasks) {
    return std::nullopt;
  }
  const absl::StatusOr<std::vector<std::string>> hosts =
      ExpandHostlist(get_variable("SLURM_STEP_NODELIST").value_or(""), "SLURM_STEP_NODELIST");
  if (!hosts.ok() || hosts->empty()) return std::nullopt;
  return SlurmStep{
      .nodes = *tasks,
      .node_rank = *rank,
      .master_addr = hosts->front(),
      .master_port = kStepPortFirst + static_cast<int>((*job * 31LL + step_number) % kStepPorts),
      .run_id = SlurmRunId(get_variable, *job, step_number)};
}

void FollowSlurmStep(const GetVariable& get_variable, const Reader& reader, Options& options) {
  if (options.standalone || options.hosts.asked()) return;
  const std::optional<SlurmStep> step = ReadSlurmStep(get_variable);
  if (!step.has_value()) return;
  if (reader.Find("--nnodes"_flag) == nullptr) {
    if (options.endpoint.has_value() || options.node_rank.has_value()) return;
    options.nodes = options.nodes_min = step->nodes;
  }
  if (options.nodes != step->nodes || options.nodes_min != step->nodes) return;
  if (!options.node_rank.has_value()) {
    options.node_rank = step->node_rank;
    options.asks_for_rank = options.rank_order == RankOrder::kJoin;
  }
  if (options.run_id.empty()) options.run_id = step->run_id;
  if (options.endpoint.has_value()) return;
  if (!options.master_addr.has_value()) options.master_addr = step->master_addr;
  // Also with --master-addr: two jobs on one node must not use the same port.
  if (!options.master_port.has_value()) options.master_port = step->master_port;
}

absl::StatusOr<std::vector<HostEntry>> ReadSlurmAllocation(const GetVariable& get_variable) {
  const std::string list = get_variable("SLURM_JOB_NODELIST").value_or("");
  if (const int components = Number(get_variable, "SLURM_HET_SIZE").value_or(0);
      list.empty() && components > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("--srun starts nodes of one allocation, and this job has ", components,
                     " components; leave it out and give srun --het-group=0-", components - 1,
                     " ddprun ..., whose tasks are the nodes of one run"));
  }
  if (list.empty()) {
    return absl::FailedPreconditionError(
        "--srun starts nodes in a Slurm allocation, and this is in none (SLURM_JOB_NODELIST is not "
        "set); run it under salloc or sbatch, or give hosts with -H");
  }
  absl::StatusOr<std::vector<std::string>> names = ExpandHostlist(list, "SLURM_JOB_NODELIST");
  if (!names.ok()) return names.status();
  std::vector<HostEntry> hosts;
  for (const std::string& name : *names) hosts.push_back({name, std::nullopt});
  return hosts;
}

std::string WorldOfOneWarning(const Options& options, const GetVariable& get_variable) {
  if (options.nodes > 1 || options.standalone) return "";
  // A worker of another launcher that starts a run of its own inherits that WORLD_SIZE.
  const bool nested = get_variable("TORCHELASTIC_RUN_ID").has_value();
  for (const Sign& sign : kSigns) {
    const std::optional<std::string> text = get_variable(sign.variable);
    int count = 0;
    if (nested || !text.has_value() || !absl::SimpleAtoi(*text, &count) || count < 2) continue;
    if (!get_variable(sign.also).has_value()) continue;
    return absl::StrCat("this node runs alone because --nnodes is 1, but ", sign.variable,
                        " says that ", count, " ", sign.of, " were started; give --nnodes ", count,
                        " --node-rank \"$", sign.node_rank,
                        "\" --master-addr ADDRESS, or --standalone if each is meant to run alone");
  }
  return "";
}

std::string InteractiveStepWarning(const Options& options, const GetVariable& get_variable) {
  const std::optional<SlurmStep> step = ReadSlurmStep(get_variable);
  if (!step.has_value() || options.run_id != step->run_id) return "";
  if (!get_variable("SLURM_PTY_PORT").has_value()) return "";
  return absl::StrCat("this is task ", step->node_rank, " of the ", step->nodes,
                      " of an interactive Slurm step, and waits until ddprun is started in all of "
                      "them; give --standalone to run on this node alone");
}

}  // namespace ddprun
