// SPDX-License-Identifier: Apache-2.0
#include "proto/foreign_launcher.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ddprun {
namespace {

// The usual port, where nothing distinguishes two jobs on a machine.
constexpr int kUsualPort = 29'500;
// Above the well-known ports and below the kernel's ephemeral ones.
constexpr int kJobPortFirst = 20'000;
constexpr int kJobPorts = 9'000;  // ends below kUsualPort

std::optional<int> Number(const GetEnv& get_env, const char* name) {
  int number = 0;
  if (!absl::SimpleAtoi(get_env(name).value_or(""), &number) || number < 0) return std::nullopt;
  return number;
}

// The same on all ranks of a job, and rarely equal for two jobs. FNV-1a gives the same result on
// all machines.
int PortOfJob(const std::string& job) {
  if (job.empty()) return kUsualPort;
  std::uint32_t hash = 2'166'136'261u;
  for (const char character : job)
    hash = (hash ^ static_cast<unsigned char>(character)) * 16'777'619u;
  return kJobPortFirst + static_cast<int>(hash % kJobPorts);
}

struct Place {
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  std::optional<int> nodes;
};

std::optional<ForeignLauncher> Described(const std::string& name, const Place& place,
                                         const std::string& job) {
  if (place.world_size < 1 || place.rank >= place.world_size) return std::nullopt;
  const int local_size = std::clamp(place.local_world_size.value_or(1), 1, place.world_size);
  const int nodes = place.nodes.value_or((place.world_size + local_size - 1) / local_size);
  ForeignLauncher launcher{.name = name, .world_size = place.world_size};
  launcher.variables = {{"RANK", absl::StrCat(place.rank)},
                        {"WORLD_SIZE", absl::StrCat(place.world_size)},
                        {"LOCAL_RANK", absl::StrCat(place.local_rank.value_or(0))},
                        {"LOCAL_WORLD_SIZE", absl::StrCat(local_size)},
                        {"GROUP_WORLD_SIZE", absl::StrCat(nodes)},
                        {"MASTER_PORT", absl::StrCat(PortOfJob(job))}};
  if (local_size == place.world_size) launcher.variables["MASTER_ADDR"] = "127.0.0.1";
  return launcher;
}

std::optional<ForeignLauncher> OpenMpi(const GetEnv& get_env) {
  const auto rank = Number(get_env, "OMPI_COMM_WORLD_RANK");
  const auto size = Number(get_env, "OMPI_COMM_WORLD_SIZE");
  if (!rank || !size) return std::nullopt;
  const std::string job =
      get_env("PMIX_NAMESPACE").value_or(get_env("OMPI_MCA_ess_base_jobid").value_or(""));
  return Described("mpirun",
                   {.rank = *rank,
                    .world_size = *size,
                    .local_rank = Number(get_env, "OMPI_COMM_WORLD_LOCAL_RANK"),
                    .local_world_size = Number(get_env, "OMPI_COMM_WORLD_LOCAL_SIZE")},
                   job);
}

// srun --mpi=pmi2 sets PMI_RANK too, but its own variables have more.
std::optional<ForeignLauncher> Hydra(const GetEnv& get_env) {
  const auto rank = Number(get_env, "PMI_RANK");
  const auto size = Number(get_env, "PMI_SIZE");
  const auto local_rank = Number(get_env, "MPI_LOCALRANKID");
  if (!rank || !size || !local_rank) return std::nullopt;
  return Described("mpirun",
                   {.rank = *rank,
                    .world_size = *size,
                    .local_rank = local_rank,
                    .local_world_size = Number(get_env, "MPI_LOCALNRANKS")},
                   get_env("SLURM_JOB_ID").value_or(""));
}

std::optional<ForeignLauncher> Srun(const GetEnv& get_env) {
  const auto rank = Number(get_env, "SLURM_PROCID");
  const auto size = Number(get_env, "SLURM_STEP_NUM_TASKS");
  // A batch script has SLURM_PROCID too, but no step.
  const auto step = Number(get_env, "SLURM_STEP_ID");
  if (!rank || !size || !step) return std::nullopt;
  const int node = Number(get_env, "SLURM_NODEID").value_or(0);
  const std::string tasks = get_env("SLURM_STEP_TASKS_PER_NODE").value_or("");
  auto launcher = Described("srun",
                            {.rank = *rank,
                             .world_size = *size,
                             .local_rank = Number(get_env, "SLURM_LOCALID"),
                             .local_world_size = TasksOfNode(tasks, node),
                             .nodes = Number(get_env, "SLURM_STEP_NUM_NODES")},
                            absl::StrCat(get_env("SLURM_JOB_ID").value_or(""), ".", *step));
  if (!launcher) return std::nullopt;
  launcher->variables["GROUP_RANK"] = absl::StrCat(node);
  const std::string host = FirstHost(get_env("SLURM_STEP_NODELIST").value_or(""));
  if (!host.empty()) launcher->variables.try_emplace("MASTER_ADDR", host);
  return launcher;
}

}  // namespace

std::optional<ForeignLauncher> FindForeignLauncher(const GetEnv& get_env) {
  // If srun started mpirun, or mpirun starts its helpers through srun, srun's variables describe
  // those.
  if (auto launcher = OpenMpi(get_env)) return launcher;
  if (auto launcher = Hydra(get_env)) return launcher;
  return Srun(get_env);
}

std::string FirstHost(const std::string& hostlist) {
  const std::size_t bracket = hostlist.find('[');
  const std::size_t comma = hostlist.find(',');
  if (bracket == std::string::npos || comma < bracket) return hostlist.substr(0, comma);
  const std::size_t number = bracket + 1;
  const std::size_t end = hostlist.find_first_of("],-", number);
  const std::size_t close = hostlist.find(']', number);
  if (close == std::string::npos) return "";
  const std::size_t rest = hostlist.find(',', close);
  const std::size_t length = rest == std::string::npos ? rest : rest - close - 1;
  return hostlist.substr(0, bracket) + hostlist.substr(number, end - number) +
         hostlist.substr(close + 1, length);
}

std::optional<int> TasksOfNode(const std::string& tasks_per_node, int node) {
  for (const absl::string_view part : absl::StrSplit(tasks_per_node, ',')) {
    const std::vector<std::string> words = absl::StrSplit(part, absl::ByAnyChar("(x)"));
    int tasks = 0;
    int nodes = 1;  // words of "2(x3)": 2, nothing, 3, nothing
    if (!absl::SimpleAtoi(words[0], &tasks)) return std::nullopt;
    if (words.size() > 2 && !absl::SimpleAtoi(words[2], &nodes)) return std::nullopt;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

}  // namespace ddprun
