// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/worker_environ.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/security/token.h"

namespace ddprun {
namespace {

// Every name that ToEnviron() can set, also those that are absent for `env`.
std::set<std::string> ContractNames() {
  WorkerEnv all;
  all.error_file = all.agent_socket = all.notify_socket = "x";
  all.round = 1;
  all.console_is_terminal = true;
  std::set<std::string> names;
  for (const auto& [name, value] : ToEnviron(all)) names.insert(name);
  return names;
}

bool Has(const std::vector<std::string>& environment, const std::string& name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return absl::StartsWith(entry, name + "="); });
}

}  // namespace

std::vector<std::string> WorkerEnviron(const std::vector<std::string>& inherited,
                                       const WorkerEnv& env, const Place& place,
                                       const std::vector<std::string>& network) {
  std::set<std::string> names = ContractNames();
  std::vector<std::string> environment;
  if (place.cuda_visible_devices.has_value()) names.insert("CUDA_VISIBLE_DEVICES");
  names.insert(kTokenVariable);  // taken out of this process's own already: to be sure
  for (const std::string& entry : inherited) {
    if (names.count(entry.substr(0, entry.find('='))) == 0) environment.push_back(entry);
  }
  WorkerEnv seen = env;
  if (place.local_rank_is_zero) seen.local_rank = 0;
  for (const auto& [name, value] : ToEnviron(seen))
    environment.push_back(absl::StrCat(name, "=", value));
  if (place.cuda_visible_devices.has_value()) {
    environment.push_back(absl::StrCat("CUDA_VISIBLE_DEVICES=", *place.cuda_visible_devices));
  }
  if (place.threads > 0 && !Has(inherited, "OMP_NUM_THREADS")) {
    environment.push_back(absl::StrCat("OMP_NUM_THREADS=", place.threads));
  }
  environment.insert(environment.end(), network.begin(), network.end());
  if (!Has(inherited, "TORCH_NCCL_ASYNC_ERROR_HANDLING"))
    environment.push_back("TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
  return environment;
}

std::vector<std::string> OwnEnviron() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace ddprun
