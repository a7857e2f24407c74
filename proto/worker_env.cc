// SPDX-License-Identifier: Apache-2.0
#include "proto/worker_env.h"

#include <cstdlib>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/foreign_launcher.h"
#include "proto/progress_message.h"

namespace ddprun {
namespace {

constexpr int kPortMax = 65535;

// Reads variables one after another and keeps the first error, so that FromEnviron() reads as a
// list.
class EnvReader {
 public:
  explicit EnvReader(const GetEnv& get_env) : get_env_(get_env) {}

  bool Has(const char* name) const { return get_env_(name).has_value(); }

  std::string Text(const char* name, std::string fallback) const {
    return get_env_(name).value_or(std::move(fallback));
  }

  std::string NeededText(const char* name) {
    auto text = get_env_(name);
    if (!text || text->empty()) {
      Complain(
          absl::StrCat(name, " is not set, but ", FirstOfTheFour(name),
                       " is; set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them"));
      return "";
    }
    return *text;
  }

  int NeededInt(const char* name, int min, int max) {
    const std::string text = NeededText(name);
    return status_.ok() ? ParseInt(name, text, min, max) : min;
  }

  int Int(const char* name, int fallback, int min, int max) {
    const auto text = get_env_(name);
    return text ? ParseInt(name, *text, min, max) : fallback;
  }

  unsigned long long Unsigned(const char* name) {
    const auto text = get_env_(name);
    unsigned long long value = 0;
    if (text && !absl::SimpleAtoi(*text, &value)) {
      Complain(absl::StrCat(name, "='", *text, "' is not a number of 0 or more"));
    }
    return value;
  }

  void Complain(const std::string& message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
  }

  const absl::Status& status() const { return status_; }

 private:
  int ParseInt(const char* name, const std::string& text, int min, int max) {
    int value = min;
    if (!absl::SimpleAtoi(text, &value)) {
      Complain(absl::StrCat(name, "='", text, "' is not a whole number"));
      return min;
    }
    if (value < min || value > max) {
      Complain(absl::StrCat(name, "=", value, " is out of range: it must be ", min, " to ", max));
      return min;
    }
    return value;
  }

  std::string FirstOfTheFour(const char* except) const {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
      if (std::string_view(name) != except && Has(name)) return name;
    }
    return "another of the four";
  }

  const GetEnv& get_env_;
  absl::Status status_;
};

bool IsSet(const std::optional<std::string>& value) { return value && !value->empty(); }

// The conflict between mpirun's or srun's variables and torchrun's; empty: none.
std::string Disagreement(const GetEnv& get_env, const ForeignLauncher& launcher) {
  const std::string started = absl::StrCat(launcher.name, " has started ", launcher.world_size,
                                           launcher.world_size == 1 ? " process" : " processes");
  const std::string size = get_env("WORLD_SIZE").value_or("");
  if (!size.empty() && size != absl::StrCat(launcher.world_size)) {
    return absl::StrCat("WORLD_SIZE is ", size, ", but ", started,
                        "; unset WORLD_SIZE, or start as many");
  }
  if (launcher.variables.count("MASTER_ADDR") == 0 && !IsSet(get_env("MASTER_ADDR"))) {
    return absl::StrCat(started,
                        " on several hosts, and MASTER_ADDR is not set; set it to rank 0's host on "
                        "all ranks (mpirun -x MASTER_ADDR=HOST, or -genv MASTER_ADDR HOST)");
  }
  return "";
}

// FromEnviron() without mpirun and srun.
absl::StatusOr<WorkerEnv> FromOwnEnviron(const GetEnv& get_env) {
  constexpr int kIntMax = std::numeric_limits<int>::max();
  EnvReader reader(get_env);
  WorkerEnv env;
  const bool alone = !IsSet(get_env("RANK")) && !IsSet(get_env("WORLD_SIZE")) &&
                     !IsSet(get_env("MASTER_ADDR")) && !IsSet(get_env("MASTER_PORT"));
  if (!alone) {
    env.world_size = reader.NeededInt("WORLD_SIZE", 1, kIntMax);
    env.rank = reader.NeededInt("RANK", 0, env.world_size - 1);
    env.master_addr = reader.NeededText("MASTER_ADDR");
    env.master_port = reader.NeededInt("MASTER_PORT", 1, kPortMax);
    if (!reader.status().ok()) return reader.status();
    // Set by hand the four describe one node with all ranks on it.
    env.local_world_size = reader.Int("LOCAL_WORLD_SIZE", env.world_size, 1, env.world_size);
    env.local_rank = reader.Int("LOCAL_RANK", env.rank % env.local_world_size, 0, kIntMax);
    env.group_world_size = reader.Int("GROUP_WORLD_SIZE", 1, 1, kIntMax);
    env.group_rank = reader.Int("GROUP_RANK", 0, 0, env.group_world_size - 1);
    // srun and mpirun users set LOCAL_RANK (from SLURM_LOCALID) but seldom LOCAL_WORLD_SIZE;
    // without it LOCAL_RANK cannot be checked.
    if (reader.Has("LOCAL_WORLD_SIZE") && env.local_rank >= env.local_world_size) {
      reader.Complain(absl::StrCat("LOCAL_RANK=", env.local_rank,
                                   " is out of range: LOCAL_WORLD_SIZE is ", env.local_world_size));
    }
  }
  env.role = reader.Text("ROLE_NAME", "default");
  env.role_rank = reader.Int("ROLE_RANK", env.rank, 0, kIntMax);
  env.role_world_size = reader.Int("ROLE_WORLD_SIZE", env.world_size, 1, kIntMax);
  env.restart_count = reader.Int("TORCHELASTIC_RESTART_COUNT", 0, 0, kIntMax);
  env.max_restarts = reader.Int("TORCHELASTIC_MAX_RESTARTS", 0, 0, kIntMax);
  env.run_id = reader.Text("TORCHELASTIC_RUN_ID", "");
  env.error_file = reader.Text("TORCHELASTIC_ERROR_FILE", "");
  env.agent_store = reader.Text("TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  env.agent_socket = reader.Text("DDPRUN_AGENT_SOCKET", "");
  env.notify_socket = reader.Text(kNotifySocketVariable, "");
  env.round = reader.Unsigned("DDPRUN_ROUND");
  env.one_round = reader.Text("DDPRUN_ONE_ROUND", "") == "1";
  env.console_is_terminal = reader.Text("DDPRUN_CONSOLE_TERMINAL", "") == "1";
  if (!reader.status().ok()) return reader.status();
  return env;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ToEnviron(const WorkerEnv& env) {
  std::vector<std::pair<std::string, std::string>> out = {
      {"RANK", absl::StrCat(env.rank)},
      {"LOCAL_RANK", absl::StrCat(env.local_rank)},
      {"WORLD_SIZE", absl::StrCat(env.world_size)},
      {"LOCAL_WORLD_SIZE", absl::StrCat(env.local_world_size)},
      {"GROUP_RANK", absl::StrCat(env.group_rank)},
      {"GROUP_WORLD_SIZE", absl::StrCat(env.group_world_size)},
      {"ROLE_NAME", env.role},
      {"ROLE_RANK", absl::StrCat(env.role_rank)},
      {"ROLE_WORLD_SIZE", absl::StrCat(env.role_world_size)},
      {"MASTER_ADDR", env.master_addr},
      {"MASTER_PORT", absl::StrCat(env.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", absl::StrCat(env.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", absl::StrCat(env.max_restarts)},
      {"TORCHELASTIC_RUN_ID", env.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", env.agent_store ? "True" : "False"},
  };
  if (!env.error_file.empty()) out.emplace_back("TORCHELASTIC_ERROR_FILE", env.error_file);
  if (!env.agent_socket.empty()) out.emplace_back("DDPRUN_AGENT_SOCKET", env.agent_socket);
  if (!env.notify_socket.empty()) out.emplace_back(kNotifySocketVariable, env.notify_socket);
  if (env.round != 0) out.emplace_back("DDPRUN_ROUND", absl::StrCat(env.round));
  if (env.one_round) out.emplace_back("DDPRUN_ONE_ROUND", "1");
  if (env.console_is_terminal) out.emplace_back("DDPRUN_CONSOLE_TERMINAL", "1");
  return out;
}

absl::StatusOr<WorkerEnv> FromEnviron(const GetEnv& get_env) {
  // RANK takes precedence over the variables of mpirun and srun.
  if (IsSet(get_env("RANK"))) return FromOwnEnviron(get_env);
  const std::optional<ForeignLauncher> launcher = FindForeignLauncher(get_env);
  if (!launcher) return FromOwnEnviron(get_env);
  if (const std::string wrong = Disagreement(get_env, *launcher); !wrong.empty())
    return absl::InvalidArgumentError(wrong);
  return FromOwnEnviron([&](const std::string& name) -> std::optional<std::string> {
    if (const auto set = get_env(name); IsSet(set)) return set;
    const auto known = launcher->variables.find(name);
    if (known == launcher->variables.end()) return std::nullopt;
    return known->second;
  });
}

absl::StatusOr<WorkerEnv> FromProcessEnviron() {
  return FromEnviron([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace ddprun
