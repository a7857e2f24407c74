// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/launch.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "proto/foreign_launcher.h"
#include "proto/input_file.h"
#include "rendezvous/base/env_file.h"
#include "rendezvous/base/own_program.h"
#include "worker/train/app/beside_train.h"
#include "worker/train/app/commands.h"

namespace ddprun {
namespace {

constexpr std::size_t kEnvFileBytesMax = 1u << 20;

std::optional<std::string> OwnVariable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string TextOf(const std::string& path) {
  absl::StatusOr<InputFile> file = ReadInput(path, kEnvFileBytesMax);
  if (file.ok()) return std::move(file->text);
  if (absl::IsInvalidArgument(file.status()))
    throw UsageError("--env-file " + path + " has more than " + std::to_string(kEnvFileBytesMax) +
                     " bytes; is it a file of variables?");
  throw UsageError("--env-file " + path + " cannot be read: " +
                   std::string(file.status().message()) + "; name a file of lines like RANK=0");
}

[[noreturn]] void BecomeDdprun(std::int64_t ranks, const std::vector<std::string>& arguments) {
  const std::string ddprun = BesideTrain("ddprun");
  std::vector<std::string> words = {ddprun, "--standalone", "--nproc-per-node",
                                    std::to_string(ranks), OwnProgram()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::fflush(nullptr);
  execv(ddprun.c_str(), pointers.data());
  throw UsageError("--world-size " + std::to_string(ranks) + " starts ranks with " + ddprun +
                   ", which cannot be run: " + std::strerror(errno) +
                   "; put ddprun there, or start the ranks with torchrun, mpirun or srun");
}

}  // namespace

void SetVariablesOfFile(const std::string& path) {
  std::string text = TextOf(path);
  absl::StatusOr<EnvFile> file = ParseEnvFile(text, path);
  Wipe(text);
  if (!file.ok()) throw UsageError("--env-file: " + std::string(file.status().message()));
  Wipe(file->token);
  for (const auto& [name, value] : file->variables)
    setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
}

LaunchPlan PlanLaunch(std::optional<std::int64_t> world_size, const GetEnv& get_env) {
  if (!world_size) return {};
  const std::string wanted = std::to_string(*world_size);
  const std::optional<std::string> size = get_env("WORLD_SIZE");
  if (size) {
    if (*size == wanted) return {};
    throw UsageError("--world-size is " + wanted + ", but WORLD_SIZE is " + *size +
                     "; leave --world-size to whoever starts the ranks, or give the same number");
  }
  if (get_env("RANK")) return {.sets_world_size = true};
  const std::optional<ForeignLauncher> launcher = FindForeignLauncher(get_env);
  // A shell that srun started is one task; it may still start ranks of its own.
  if (!launcher || launcher->world_size == 1) return {.spawn = *world_size > 1};
  if (launcher->world_size == *world_size) return {};
  throw UsageError("--world-size is " + wanted + ", but " + launcher->name + " has started " +
                   std::to_string(launcher->world_size) +
                   " processes; leave --world-size out, or give the same number");
}

WorkerEnv Launch(const Config& config, const std::vector<std::string>& arguments) {
  if (!config.env_file.empty()) SetVariablesOfFile(config.env_file);
  const LaunchPlan plan = PlanLaunch(config.world_size, OwnVariable);
  if (plan.spawn) BecomeDdprun(*config.world_size, arguments);
  if (plan.sets_world_size)
    setenv("WORLD_SIZE", std::to_string(*config.world_size).c_str(), /*overwrite=*/1);
  return Environment();
}

}  // namespace ddprun
