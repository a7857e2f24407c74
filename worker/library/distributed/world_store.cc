// SPDX-License-Identifier: Apache-2.0
#include "worker/library/distributed/world_store.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "proto/text.h"
#include "rendezvous/base/resolve.h"
#include "worker/library/base/first_line.h"
#include "worker/library/base/quiet_log.h"
#include "worker/library/distributed/agent_store.h"

namespace ddprun {
namespace {

// torchrun's agent sets this variable if it serves the store for its workers.
bool AgentServesTcpStore() {
  const char* value = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  return value != nullptr && std::string_view(value) == "True";
}

c10::intrusive_ptr<c10d::Store> OpenAgentStore(const WorkerEnv& env,
                                               std::chrono::milliseconds timeout) {
  return AgentStore::Connect(
      {.target = "unix:" + env.agent_socket, .round = static_cast<RoundId>(env.round)}, timeout);
}

// TCPStore puts a name that has no address down to the port. A name may come up later than the
// ranks (Kubernetes), so it is asked for until the time is over. Returns what is left of that.
std::chrono::milliseconds AwaitMasterName(const WorkerEnv& env, std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kPause{500};
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    int error = 0;
    const bool found = Resolve(env.master_addr, env.master_port, SOCK_STREAM, 0, &error) != nullptr;
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (found) return std::max(rest, std::chrono::milliseconds(1));
    if (rest <= kPause) {
      throw std::runtime_error("rank " + std::to_string(env.rank) + " cannot resolve '" +
                               env.master_addr + "' (MASTER_ADDR): " + gai_strerror(error) +
                               "; check the name on this host, or give an address");
    }
    std::this_thread::sleep_for(kPause);
  }
}

c10::intrusive_ptr<c10d::Store> OpenTcpStore(const WorkerEnv& env,
                                             std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(env.master_port);
  options.isServer = env.rank == 0 && !AgentServesTcpStore();
  options.numWorkers = env.world_size;
  options.waitWorkers = false;  // the roll call waits, and names missing ranks
  options.timeout = AwaitMasterName(env, timeout);
  const std::string endpoint = HostPort(env.master_addr, env.master_port);
  const QuietLog quiet;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(env.master_addr, options);
    if (!AgentServesTcpStore()) return store;
    // torchrun's agent keeps one store over all restarts of its workers.
    return c10::make_intrusive<c10d::PrefixStore>(
        "ddprun/attempt_" + std::to_string(env.restart_count), std::move(store));
  } catch (const c10::Error& error) {
    if (options.isServer) {
      throw std::runtime_error(
          "rank 0 cannot serve the store at " + endpoint +
          " (MASTER_ADDR:MASTER_PORT); is the port taken? Choose another MASTER_PORT on all ranks. "
          "LibTorch says: " +
          FirstLine(error));
    }
    throw std::runtime_error(
        "rank " + std::to_string(env.rank) + " did not reach rank 0's store at " + endpoint +
        " (MASTER_ADDR:MASTER_PORT) within " +
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(timeout).count()) +
        " s; does rank 0 run, and is the port open? LibTorch says: " + FirstLine(error));
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> OpenWorldStore(const WorkerEnv& env,
                                               std::chrono::milliseconds timeout) {
  if (!env.agent_socket.empty()) return OpenAgentStore(env, timeout);
  if (env.world_size == 1) {
    auto store = c10::make_intrusive<c10d::HashStore>();
    store->setTimeout(timeout);
    return store;
  }
  return OpenTcpStore(env, timeout);
}

c10::intrusive_ptr<c10d::Store> DefaultGroupStore(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::string& device) {
  // distributed_c10d.py, in this order: init_process_group(), then _new_process_group_helper()
  // twice. The slashes are doubled because PrefixStore adds one of its own.
  auto default_group = c10::make_intrusive<c10d::PrefixStore>("default_pg", store);
  auto group = c10::make_intrusive<c10d::PrefixStore>("0/", std::move(default_group));
  return c10::make_intrusive<c10d::PrefixStore>(device + "/", std::move(group));
}

}  // namespace ddprun
