// SPDX-License-Identifier: Apache-2.0
// What start_many does, over c10d's TCPStore: join, learn one's rank, wait until all are there, get
// the id that rank 0 sets, pass a barrier. Prints one line of JSON.
//
//     start_many_tcpstore [--nodes 64] [--ranks 10] [--clients-per-node 1]
//
// A program that is started by torchrun has a client of TCPStore, and with it a connection, for
// each rank. 100 000 of them do not fit on one machine, so that a node's ranks can share one: then
// they ask one after another, which spares TCPStore nine tenths of its connections and of its
// waiting clients, but not of its operations. --clients-per-node as many as --ranks is what a real
// start does.
//
// TCPStore's client blocks, so each has a thread, which is there before the time begins. The server
// is a process of its own.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "rendezvous/process/resource_limit.h"
#include "tests/bench/process_usage.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{300'000};
// Ten thousand stacks of the usual size are more than a process may map.
constexpr std::size_t kStackBytes = 256 * 1024;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "start_many_tcpstore: %s\n", what.c_str());
  std::_Exit(1);
}

struct Arguments {
  int nodes = 64;
  int ranks = 10;
  int clients_per_node = 1;
  int clients() const { return nodes * clients_per_node; }
  int world() const { return nodes * ranks; }
};

// When the last client came there.
struct Milestone {
  std::atomic<Clock::rep> last{0};
  void Reached() {
    const Clock::rep now = Clock::now().time_since_epoch().count();
    Clock::rep seen = last;
    while (seen < now && !last.compare_exchange_weak(seen, now)) {
    }
  }
};

struct Start {
  Arguments arguments;
  std::uint16_t port = 0;
  pthread_barrier_t begin;
  pthread_barrier_t end;
  std::vector<std::atomic<bool>> given;  // by the rank of a client
  std::atomic<bool> wrong{false};
  Milestone ranks_known;
  Milestone have_id;
  Milestone passed;
};

c10::intrusive_ptr<c10d::Store> Connect(std::uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = kPatience;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

void Exchange(Start& start) {
  const Arguments& arguments = start.arguments;
  const int ranks_here = arguments.ranks / arguments.clients_per_node;
  const auto store = Connect(start.port);
  const std::int64_t joined = store->add("joined", 1);
  const auto rank = static_cast<std::size_t>(joined - 1);
  if (joined == arguments.clients()) store->set("all", "1");
  store->wait({"all"});
  if (rank >= start.given.size() || start.given[rank].exchange(true)) start.wrong = true;
  start.ranks_known.Reached();

  if (rank == 0) store->set("ncclUniqueId", std::vector<std::uint8_t>(128, 'i'));
  for (int i = 0; i < ranks_here; ++i) {
    if (store->get("ncclUniqueId").size() != 128) start.wrong = true;
  }
  start.have_id.Reached();

  for (int i = 0; i < ranks_here; ++i) {
    if (store->add("arrived", 1) == arguments.world()) store->set("open", "1");
  }
  for (int i = 0; i < ranks_here; ++i) store->wait({"open"});
  start.passed.Reached();
  pthread_barrier_wait(&start.end);
}

void* Client(void* argument) {
  auto& start = *static_cast<Start*>(argument);
  pthread_barrier_wait(&start.begin);
  try {
    Exchange(start);
  } catch (const std::exception& error) {
    Die(error.what());
  }
  return nullptr;
}

// Lives until its standard input, a pipe from the parent, is closed.
[[noreturn]] void Serve(int port_out, int end_in) {
  RaiseFileLimit();
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore store("127.0.0.1", options);
  const std::uint16_t port = store.getPort();
  if (write(port_out, &port, sizeof port) != sizeof port) Die("no pipe");
  char ignored = 0;
  [[maybe_unused]] const ssize_t count = read(end_in, &ignored, 1);
  std::_Exit(0);
}

void StartClients(Start& start) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  for (int i = 0; i < start.arguments.clients(); ++i) {
    pthread_t thread{};
    if (pthread_create(&thread, &attributes, Client, &start) != 0) Die("no more threads");
    pthread_detach(thread);
  }
  pthread_attr_destroy(&attributes);
}

int Run(const Arguments& arguments) {
  int port_pipe[2];
  int end_pipe[2];
  if (pipe(port_pipe) != 0 || pipe(end_pipe) != 0) Die("no pipe");
  const pid_t server = fork();
  if (server == 0) {
    close(end_pipe[1]);
    Serve(port_pipe[1], end_pipe[0]);
  }
  RaiseFileLimit();
  Start start{
      .arguments = arguments,
      .given = std::vector<std::atomic<bool>>(static_cast<std::size_t>(arguments.clients()))};
  if (read(port_pipe[0], &start.port, sizeof start.port) != sizeof start.port) Die("no server");
  const auto waiting = static_cast<unsigned>(arguments.clients() + 1);
  pthread_barrier_init(&start.begin, nullptr, waiting);
  pthread_barrier_init(&start.end, nullptr, waiting);
  StartClients(start);
  const std::string pid = std::to_string(server);
  const Used server_before = UsedBy(pid);
  const Used client_before = UsedBy("self");
  const Clock::time_point begin = Clock::now();
  pthread_barrier_wait(&start.begin);
  pthread_barrier_wait(&start.end);
  const Used server_after = UsedBy(pid);
  const Used client_after = UsedBy("self");
  const bool right = !start.wrong && std::all_of(start.given.begin(), start.given.end(),
                                                 [](const auto& given) { return given.load(); });
  const auto seconds = [&](const Milestone& milestone) {
    return 1e-9 * static_cast<double>(milestone.last - begin.time_since_epoch().count());
  };
  const nlohmann::json report = {
      {"nodes", arguments.nodes},
      {"ranks", arguments.ranks},
      {"connections", arguments.clients()},
      {"ranks_right", right},
      {"ranks_known_s", seconds(start.ranks_known)},
      {"id_s", seconds(start.have_id)},
      {"total_s", seconds(start.passed)},
      {"service_cpu_s", server_after.cpu_seconds - server_before.cpu_seconds},
      {"service_mb", server_after.resident_mb},
      {"agents_cpu_s", client_after.cpu_seconds - client_before.cpu_seconds},
      {"agents_mb", client_after.resident_mb}};
  std::printf("%s\n", report.dump().c_str());
  std::fflush(stdout);
  close(end_pipe[1]);
  waitpid(server, nullptr, 0);
  // Threads and clients need not be taken down one by one.
  std::_Exit(right ? 0 : 1);
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--nodes") arguments.nodes = std::atoi(argv[i + 1]);
    if (name == "--ranks") arguments.ranks = std::atoi(argv[i + 1]);
    if (name == "--clients-per-node") arguments.clients_per_node = std::atoi(argv[i + 1]);
  }
  if (arguments.nodes < 1 || arguments.ranks < 1 || arguments.clients_per_node < 1 ||
      arguments.ranks % arguments.clients_per_node != 0) {
    Die("usage: start_many_tcpstore [--nodes N] [--ranks R] [--clients-per-node K, a part of R]");
  }
  return arguments;
}

}  // namespace
}  // namespace ddprun

// In place of libc's, which would be asked for the name of each client's address, for c10d's log
// alone: a name server that does not answer must not be counted against TCPStore.
extern "C" int getnameinfo(const sockaddr* address, socklen_t, char* host, socklen_t host_size,
                           char* service, socklen_t service_size, int) {
  const bool v6 = address->sa_family == AF_INET6;
  const void* bytes =
      v6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)
         : &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  const in_port_t port = v6 ? reinterpret_cast<const sockaddr_in6*>(address)->sin6_port
                            : reinterpret_cast<const sockaddr_in*>(address)->sin_port;
  if (host != nullptr) inet_ntop(address->sa_family, bytes, host, host_size);
  if (service != nullptr) std::snprintf(service, service_size, "%d", ntohs(port));
  return 0;
}

int main(int argc, char** argv) { return ddprun::Run(ddprun::Parse(argc, argv)); }
