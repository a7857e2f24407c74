// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/slurm_job.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

// The step of salloc's shell (SLURM_INTERACTIVE_STEP of slurm.h).
constexpr std::int64_t kInteractiveStep = 0xfffffffa;

std::int64_t Number(const GetVariable& get_variable, const char* name) {
  std::int64_t number = -1;
  return absl::SimpleAtoi(get_variable(name).value_or(""), &number) ? number : -1;
}

// How many GPUs this process may use on this node, and which variable says so; null: none does.
const char* FindGpuCount(const GetVariable& get_variable, std::int64_t& count) {
  count = Number(get_variable, "SLURM_GPUS_ON_NODE");
  if (count >= 0) return "SLURM_GPUS_ON_NODE";
  for (const char* name : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    const std::string list = get_variable(name).value_or("");
    if (list.empty()) continue;
    const std::vector<std::string> gpus = absl::StrSplit(list, ',');
    count = static_cast<std::int64_t>(gpus.size());
    return name;
  }
  return nullptr;
}

bool HidesAll(const std::optional<std::string>& visible) {
  if (!visible.has_value()) return false;
  const absl::string_view first = absl::StripAsciiWhitespace(*visible);
  return first.empty() || first[0] == '-' || first == "none" || first == "void";
}

}  // namespace

std::string SlurmRunId(const GetVariable& get_variable, int job, long long step) {
  const std::int64_t array = Number(get_variable, "SLURM_ARRAY_JOB_ID");
  const std::int64_t task = Number(get_variable, "SLURM_ARRAY_TASK_ID");
  const std::int64_t requeues = Number(get_variable, "SLURM_RESTART_COUNT");
  const std::string name =
      array >= 0 && task >= 0 ? absl::StrCat(array, "_", task) : absl::StrCat(job);
  return absl::StrCat("slurm-", name, ".", step, requeues > 0 ? absl::StrCat("-r", requeues) : "");
}

absl::Status CheckSlurmGpus(const Options& options, int devices,
                            const std::optional<std::string>& visible,
                            const GetVariable& get_variable) {
  std::int64_t count = 0;
  const char* variable = FindGpuCount(get_variable, count);
  if (variable == nullptr || count < 1 || devices > 0 || HidesAll(visible) ||
      options.proc_per_node == ProcPerNode::kCpu) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "Slurm gave this job ", count, count == 1 ? " GPU" : " GPUs", " on this node (", variable,
      "), and no device is visible here: is the driver loaded (nvidia-smi)? To train on the CPU "
      "all "
      "the same, set CUDA_VISIBLE_DEVICES to nothing"));
}

std::string IdleNodesWarning(const Options& options, const GetVariable& get_variable) {
  const std::int64_t nodes = Number(get_variable, "SLURM_JOB_NUM_NODES");
  const bool is_shell = get_variable("SLURM_PTY_PORT").has_value() ||
                        Number(get_variable, "SLURM_STEP_ID") == kInteractiveStep;
  if (!is_shell || nodes < 2 || Number(get_variable, "SLURM_STEP_NUM_TASKS") > 1) return "";
  if (options.nodes > 1 || options.standalone || options.hosts.asked()) return "";
  return absl::StrCat("this shell is on one of the ", nodes,
                      " nodes of its Slurm job, and ddprun uses this one alone; give --srun to use "
                      "all of them, or --standalone");
}

}  // namespace ddprun
