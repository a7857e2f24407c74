// SPDX-License-Identifier: Apache-2.0
// A worker that exchanges a real NCCL unique ID through the run's store, as ProcessGroupNCCL does
// with its first communicator, without needing a GPU: rank 0 sets it, every rank prints "rank R
// nccl-id HEX KEY". With an argument, that many roots do, and a rank prints a line for each of
// them.
#include <cstdio>
#include <exception>

#include "proto/worker_env.h"
#include "tests/integration/worker/nccl_roots.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/library/distributed/world_store.h"

namespace ddprun {
namespace {

std::string Hex(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    char pair[3];
    std::snprintf(pair, sizeof(pair), "%02x", byte);
    text += pair;
  }
  return text;
}

// "default_pg/0//cuda//UniqueNCCLID:1" for the second root.
std::string KeyOf(int root, int roots) {
  const std::string key = kNcclIdKey;
  return roots == 1 ? key : key.substr(0, key.size() - 1) + "UniqueNCCLID:" + std::to_string(root);
}

int Run(int roots) {
  const absl::StatusOr<WorkerEnv> env = FromProcessEnviron();
  if (!env.ok()) throw std::runtime_error(std::string(env.status().message()));
  const auto store = OpenWorldStore(*env, std::chrono::seconds(60));
  const std::vector<NcclId> ids =
      ExchangeIds(*DefaultGroupStore(store, "cuda"), env->rank, env->world_size, roots);
  for (int root = 0; root < roots; ++root) {
    // By the key's full name too, so that the two spellings are held to be one.
    const std::string key = KeyOf(root, roots);
    const NcclId id = store->get(key);
    if (id != ids[static_cast<std::size_t>(root)])
      throw std::runtime_error(key + " is not what the group's store has");
    std::printf("rank %d nccl-id %s %s\n", env->rank, Hex(id).c_str(), key.c_str());
  }
  // Rank 0 may serve the store: nobody leaves before all have read.
  if (store->add("nccl_id_probe/read", 1) == env->world_size)
    store->set("nccl_id_probe/all_read", "1");
  store->wait({"nccl_id_probe/all_read"});
  return 0;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  try {
    return ddprun::Run(argc > 1 ? std::stoi(argv[1]) : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_id_probe: %s\n", error.what());
    return 1;
  }
}
