// SPDX-License-Identifier: Apache-2.0
// The store beside c10d's TCPStore, in one run and in turn: the same worker processes, the same
// calls of c10d::Store.
//
//     store_vs_tcpstore [--workers 64] [--repeats 40] [--json FILE]
//
// exchange: each worker sets one key, gets all keys at once and passes a barrier (add, set by the
// last, wait). From the first worker's start to the last one's end, over one node and over two
// (half of the workers on each). TCPStore's set is not acknowledged: it returns before the server
// has read it. The rows "acknowledged" add a get to it, which is then the same promise; those
// without it are shown as well. "torch's client": c10d::TCPStore at the port of its node's agent.
// latency: one worker, one call after another, over the agent of the node that does not host the
// service.
//
// The processes are those of a run: node 0 (service and agent), node 1 (agent), a TCPStore server,
// and the workers. The runs of two nodes are in plain text, with TLS between node 1 and the
// service, and with a journal (in the folder of temporary files). Each time is the monotonic
// clock's; figures are medians with the least and the most seen.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "rendezvous/journal/sqlite_journal.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/security/token.h"
#include "rendezvous/service/server.h"
#include "tests/bench/bench_node.h"
#include "worker/library/distributed/agent_store.h"

namespace ddprun {
namespace {

constexpr int kWorkersMax = 1024;
constexpr int kSamplesMax = 4096;
constexpr std::chrono::seconds kLong{60};

// Runs of two nodes, each with a service of its own on node 0.
struct TwoNodes {
  const char* name;
  const char* label;
  bool tls = false;
  bool journal = false;
};
constexpr TwoNodes kTwoNodes[] = {{"two", "two nodes"},
                                  {"tls", "two nodes, TLS", true},
                                  {"kept", "two nodes, journal", false, true}};
constexpr int kTwoNodesCount = 3;
constexpr int kTls = 1;  // of kTwoNodes: the one to whose agents torch's client goes too

struct Arguments {
  int workers = 64;
  int repeats = 40;
  std::string json;
};

// What the processes share. All of it is made before the first fork.
struct Shared {
  pthread_barrier_t workers;   // the workers and the parent
  pthread_barrier_t everyone;  // the helpers, the workers and the parent
  int tcp_port = 0;
  int service_port[kTwoNodesCount] = {};
  // Where the agents serve TCPStore: of the run of one node, and of each node of the one with TLS.
  int one_port = 0;
  int tls_port[2] = {};
  int sample_count = 0;
  std::uint64_t messages[2] = {};  // one: node 0; two: node 0
  double begin[kWorkersMax] = {};
  double end[kWorkersMax] = {};
  double samples[kSamplesMax] = {};
};

double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "store_vs_tcpstore: %s\n", what.c_str());
  std::_Exit(1);
}

void MakeBarrier(pthread_barrier_t* barrier, int count) {
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(barrier, &attributes, static_cast<unsigned>(count));
}

pid_t Fork(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  body();
  std::fflush(nullptr);
  std::_Exit(0);
}

// A secret of nothing: the nodes are of this process.
Token BenchToken() {
  return *Token::Parse("7843469c02b600dcfb2c671081addca046152efb4b2acf1e5b81a0b3da492dee",
                       "the benchmark");
}

class Bench {
 public:
  Bench(Arguments arguments, Shared* shared, std::filesystem::path folder)
      : arguments_(std::move(arguments)), shared_(shared), folder_(std::move(folder)) {}

  int Run();

 private:
  void HostTcpStore();
  BenchNode::Options NodeOf(const TwoNodes& run, int number,
                            std::shared_ptr<StoreConnector> connector);
  void HostNode0();
  void HostNode1();
  void Work(int rank);
  void Exchange(c10d::Store& store, int rank, const std::string& prefix, bool get_what_was_set);
  void Latency(c10d::Store& store, bool acknowledged);

  void TakeExchange(const std::string& name, bool warm);
  void TakeSamples(const std::string& name);
  void Print() const;

  std::string Socket(const std::string& name) const { return folder_ / name; }
  std::string SocketOf(const TwoNodes& run, int node) const {
    return Socket(run.name + std::to_string(node));
  }
  void All() { pthread_barrier_wait(&shared_->everyone); }
  void Workers() { pthread_barrier_wait(&shared_->workers); }

  const Arguments arguments_;
  Shared* const shared_;
  const std::filesystem::path folder_;
  std::map<std::string, std::vector<double>> seen_;  // milliseconds, microseconds
};

void Bench::HostTcpStore() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  c10d::TCPStore store("127.0.0.1", options);
  shared_->tcp_port = store.getPort();
  All();  // ports are known
  All();  // nodes are up
  All();  // the end
}

BenchNode::Options Bench::NodeOf(const TwoNodes& run, int number,
                                 std::shared_ptr<StoreConnector> connector) {
  const std::string name = "node-" + std::to_string(number);
  return {.run_id = run.name,
          .name = name,
          .nodes = 2,
          .socket_path = SocketOf(run, number),
          .connector = std::move(connector),
          .credentials = run.tls ? std::optional(*MintNodeCredentials(BenchToken(), run.name, name))
                                 : std::nullopt};
}

void Bench::HostNode0() {
  std::vector<std::unique_ptr<RendezvousServer>> servers;
  for (const TwoNodes& run : kTwoNodes) {
    RendezvousServer::Options options{.address = "127.0.0.1"};
    if (run.tls) options.credentials = *MintServiceCredentials(BenchToken());
    if (run.journal) {
      options.journal = {
          .open =
              [this](const JournalReplay& replay) {
                return OpenSqliteJournal(folder_ / "journal", {.sync_on_commit = false}, replay);
              },
          .on_failure = [](const absl::Status& status) { Die(std::string(status.message())); }};
    }
    auto server = RendezvousServer::Start(std::move(options));
    if (!server.ok()) Die(std::string(server.status().message()));
    shared_->service_port[servers.size()] = (*server)->port();
    servers.push_back(*std::move(server));
  }
  RendezvousServer& first = *servers[0];
  BenchNode one(first.target(), {.run_id = "one",
                                 .name = "node-0",
                                 .socket_path = Socket("one"),
                                 .connector = first.store_connector()});
  std::vector<std::unique_ptr<BenchNode>> nodes;
  for (int i = 0; i < kTwoNodesCount; ++i) {
    RendezvousServer& server = *servers[static_cast<std::size_t>(i)];
    nodes.push_back(std::make_unique<BenchNode>(server.target(),
                                                NodeOf(kTwoNodes[i], 0, server.store_connector())));
  }
  All();
  one.WaitForStart();
  for (const auto& node : nodes) node->WaitForStart();
  shared_->one_port = one.ServeTcpStore();
  shared_->tls_port[0] = nodes[kTls]->ServeTcpStore();
  All();
  All();
  shared_->messages[0] = first.store_messages("one", "node-0");
  shared_->messages[1] = first.store_messages("two", "node-0");
}

void Bench::HostNode1() {
  All();
  std::vector<std::unique_ptr<BenchNode>> nodes;
  for (int i = 0; i < kTwoNodesCount; ++i) {
    nodes.push_back(std::make_unique<BenchNode>(
        "127.0.0.1:" + std::to_string(shared_->service_port[i]), NodeOf(kTwoNodes[i], 1, nullptr)));
  }
  for (const auto& node : nodes) node->WaitForStart();
  shared_->tls_port[1] = nodes[kTls]->ServeTcpStore();
  All();
  All();
}

// ---- The workers

void Bench::Exchange(c10d::Store& store, int rank, const std::string& prefix,
                     bool get_what_was_set) {
  const int workers = arguments_.workers;
  std::vector<std::string> keys;
  for (int r = 0; r < workers; ++r) keys.push_back(prefix + "/key/" + std::to_string(r));
  const std::vector<std::uint8_t> value(64, static_cast<std::uint8_t>(rank));
  Workers();
  shared_->begin[rank] = Seconds();
  store.set(keys[static_cast<std::size_t>(rank)], value);
  if (get_what_was_set) store.get(keys[static_cast<std::size_t>(rank)]);
  const auto values = store.multiGet(keys);
  if (store.add(prefix + "/arrived", 1) == workers) store.set(prefix + "/all", "1");
  store.wait({prefix + "/all"});
  shared_->end[rank] = Seconds();
  for (int r = 0; r < workers; ++r) {
    if (values[static_cast<std::size_t>(r)] !=
        std::vector<std::uint8_t>(64, static_cast<std::uint8_t>(r)))
      Die("a wrong value");
  }
  Workers();
}

// By rank 0 alone, while the others wait.
void Bench::Latency(c10d::Store& store, bool acknowledged) {
  const std::vector<std::uint8_t> value(64, 1);
  store.set("latency", value);
  store.get("latency");
  for (int i = 0; i < shared_->sample_count; ++i) {
    const double begin = Seconds();
    if (acknowledged) {
      store.set("unread", value);
    } else {
      store.get("latency");
    }
    shared_->samples[i] = Seconds() - begin;
  }
}

void Bench::Work(int rank) {
  All();
  All();
  const int node = rank < arguments_.workers / 2 ? 0 : 1;
  const auto torch_client = [](int port) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(port);
    options.waitWorkers = false;
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  };
  const auto tcp_store = torch_client(shared_->tcp_port);
  c10d::TCPStore& tcp = *tcp_store;
  const auto tcp_at_one = torch_client(shared_->one_port);
  const auto tcp_at_tls = torch_client(shared_->tls_port[node]);
  const auto connect = [](const std::string& path) {
    return AgentStore::Connect({.target = "unix:" + path, .round = RoundId{1}}, kLong);
  };
  const auto one = connect(Socket("one"));
  std::vector<c10::intrusive_ptr<AgentStore>> two;
  for (const TwoNodes& run : kTwoNodes) two.push_back(connect(SocketOf(run, node)));
  for (int repeat = 0; repeat <= arguments_.repeats; ++repeat) {
    const std::string prefix = "exchange/" + std::to_string(repeat);
    Exchange(tcp, rank, prefix, false);
    Exchange(*one, rank, prefix, false);
    Exchange(*tcp_at_one, rank, prefix + "/torch", false);
    Exchange(*tcp_at_tls, rank, prefix + "/torch", false);
    Exchange(tcp, rank, prefix + "/acknowledged", true);
    for (const auto& store : two) Exchange(*store, rank, prefix, false);
  }
  // Of the node that does not host the service.
  std::vector<c10::intrusive_ptr<AgentStore>> far;
  for (const TwoNodes& run : kTwoNodes) far.push_back(connect(SocketOf(run, 1)));
  for (int repeat = 0; repeat < 4; ++repeat) {
    for (const bool acknowledged : {false, true}) {
      for (const auto& store : far) {
        Workers();
        if (rank == 0) Latency(*store, acknowledged);
        Workers();
      }
      Workers();
      if (rank == 0 && !acknowledged) Latency(tcp, false);
      if (rank == 0 && acknowledged) {
        const std::vector<std::uint8_t> value(64, 1);
        for (int i = 0; i < shared_->sample_count; ++i) {
          const double begin = Seconds();
          tcp.set("unread", value);
          tcp.get("unread");
          shared_->samples[i] = Seconds() - begin;
        }
      }
      Workers();
    }
  }
  All();
}

// ---- The parent

void Bench::TakeExchange(const std::string& name, bool warm) {
  Workers();
  Workers();
  const auto count = static_cast<std::size_t>(arguments_.workers);
  const double begin = *std::min_element(shared_->begin, shared_->begin + count);
  const double end = *std::max_element(shared_->end, shared_->end + count);
  if (warm) seen_[name].push_back(1e3 * (end - begin));
}

void Bench::TakeSamples(const std::string& name) {
  Workers();
  Workers();
  for (int i = 0; i < shared_->sample_count; ++i) seen_[name].push_back(1e6 * shared_->samples[i]);
}

double Quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

void Bench::Print() const {
  nlohmann::json report{{"workers", arguments_.workers}, {"repeats", arguments_.repeats}};
  std::printf("%-45s %10s %10s %10s %10s\n", "", "median", "p99", "min", "max");
  for (const auto& [name, values] : seen_) {
    const double median = Quantile(values, 0.5);
    const double p99 = Quantile(values, 0.99);
    const double least = Quantile(values, 0);
    const double most = Quantile(values, 1);
    std::printf("%-45s %10.3f %10.3f %10.3f %10.3f\n", name.c_str(), median, p99, least, most);
    report[name] = {{"median", median}, {"p99", p99}, {"min", least}, {"max", most}};
  }
  const auto median = [this](const std::string& name) { return Quantile(seen_.at(name), 0.5); };
  for (const std::string nodes : {"one node", "two nodes", "two nodes, TLS", "two nodes, journal",
                                  "torch's client, one node", "torch's client, two nodes, TLS"}) {
    for (const std::string peer : {"TCPStore", "TCPStore, acknowledged"}) {
      const double ratio = median("exchange ms, " + nodes) / median("exchange ms, " + peer);
      std::printf("exchange, %s / %s: %.2f\n", nodes.c_str(), peer.c_str(), ratio);
      report["exchange ratio, " + nodes + " / " + peer] = ratio;
    }
  }
  // The warming exchange counts too.
  const double exchanges = arguments_.repeats + 1;
  const char* names[] = {"one node: node 0", "two nodes: node 0"};
  for (int i = 0; i < 2; ++i) {
    const double messages = static_cast<double>(shared_->messages[i]) / exchanges;
    std::printf("messages up per exchange, %s: %.1f\n", names[i], messages);
    report[std::string("messages up per exchange, ") + names[i]] = messages;
  }
  if (!arguments_.json.empty()) std::ofstream(arguments_.json) << report.dump(2) << "\n";
}

int Bench::Run() {
  const int helpers = 3;
  MakeBarrier(&shared_->workers, arguments_.workers + 1);
  MakeBarrier(&shared_->everyone, arguments_.workers + helpers + 1);
  shared_->sample_count = std::min(kSamplesMax, 500);
  std::vector<pid_t> children;
  children.push_back(Fork([this] { HostTcpStore(); }));
  children.push_back(Fork([this] { HostNode0(); }));
  children.push_back(Fork([this] { HostNode1(); }));
  for (int rank = 0; rank < arguments_.workers; ++rank) {
    children.push_back(Fork([this, rank] { Work(rank); }));
  }
  All();
  All();
  for (int repeat = 0; repeat <= arguments_.repeats; ++repeat) {
    TakeExchange("exchange ms, TCPStore", repeat > 0);
    TakeExchange("exchange ms, one node", repeat > 0);
    TakeExchange("exchange ms, torch's client, one node", repeat > 0);
    TakeExchange("exchange ms, torch's client, two nodes, TLS", repeat > 0);
    TakeExchange("exchange ms, TCPStore, acknowledged", repeat > 0);
    for (const TwoNodes& run : kTwoNodes) {
      TakeExchange(std::string("exchange ms, ") + run.label, repeat > 0);
    }
  }
  for (int repeat = 0; repeat < 4; ++repeat) {
    for (const TwoNodes& run : kTwoNodes) TakeSamples(std::string("get us, ") + run.label);
    TakeSamples("get us, TCPStore");
    for (const TwoNodes& run : kTwoNodes) {
      TakeSamples(std::string("acknowledged set us, ") + run.label);
    }
    TakeSamples("acknowledged set us, TCPStore");
  }
  All();
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, status);
  }
  if (worst == 0) Print();
  return worst == 0 ? 0 : 1;
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--workers") arguments.workers = std::atoi(argv[i + 1]);
    if (name == "--repeats") arguments.repeats = std::atoi(argv[i + 1]);
    if (name == "--json") arguments.json = argv[i + 1];
  }
  if (arguments.workers < 2 || arguments.workers > kWorkersMax || arguments.repeats < 1) {
    Die("usage: store_vs_tcpstore [--workers 2..1024] [--repeats N] [--json FILE]");
  }
  return arguments;
}

int Main(int argc, char** argv) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Die("no shared memory");
  std::string pattern = (std::filesystem::temp_directory_path() / "store-bench-XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(pattern.data());
  const int result = Bench(Parse(argc, argv), new (memory) Shared, folder).Run();
  std::filesystem::remove_all(folder);
  return result;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) { return ddprun::Main(argc, argv); }
