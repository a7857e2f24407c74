// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/scheduler_env.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

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

std::string WorldOfOneWarning(const Options& options, const GetVariable& get_variable) {
  if (options.nodes > 1 || options.standalone) return "";
  // A worker of another launcher that starts a run of its own inherits that WORLD_SIZE.
  const bool nested = get_variable("TORCHELASTIC_RUN_ID").has_value();
  for (const Sign& sign : kSigns) {
    const std::optional<std::string> text = get_variable(sign.variable);
    int count = 0;
    if (nested || !text.has_value() || !absl::SimpleAtoi(*text, &count) || count < 2) continue;
    if (!get_variable(sign.also).has_value()) continue;
    return absl::StrCat("this node is a world of its own, as --nnodes is 1, and ", sign.variable,
                        " says that ", count, " ", sign.of, " were started; give --nnodes ", count,
                        " --node-rank \"$", sign.node_rank,
                        "\" --master-addr ADDRESS, or --standalone if each is to run alone");
  }
  return "";
}

}  // namespace ddprun
