// SPDX-License-Identifier: Apache-2.0
// A worker that exchanges a real NCCL unique ID through the run's store, as ProcessGroupNCCL does
// with its first communicator, without needing a GPU: rank 0 sets it, every rank prints "rank R
// nccl-id HEX KEY".
#include <cstdio>
#include <exception>

#include "proto/worker_env.h"
#include "worker/distributed/accelerator.h"
#include "worker/distributed/world_store.h"

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

int Run() {
  const absl::StatusOr<WorkerEnv> env = FromProcessEnviron();
  if (!env.ok()) throw std::runtime_error(std::string(env.status().message()));
  const auto store = OpenWorldStore(*env, std::chrono::seconds(60));
  // The store and key of ProcessGroupNCCL's first communicator. The others read by the key's full
  // name, so that the two spellings are held to be one.
  if (env->rank == 0) DefaultGroupStore(store, "cuda")->set("0", LoadAccelerator().NcclUniqueId());
  const std::vector<uint8_t> id = store->get(kNcclIdKey);
  std::printf("rank %d nccl-id %s %s\n", env->rank, Hex(id).c_str(), kNcclIdKey);
  // Rank 0 may serve the store: nobody leaves before all have read.
  if (store->add("nccl_id_probe/read", 1) == env->world_size)
    store->set("nccl_id_probe/all_read", "1");
  store->wait({"nccl_id_probe/all_read"});
  return 0;
}

}  // namespace
}  // namespace ddprun

int main() {
  try {
    return ddprun::Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_id_probe: %s\n", error.what());
    return 1;
  }
}
