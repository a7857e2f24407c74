// SPDX-License-Identifier: Apache-2.0
// The start of a run of many nodes, against a service that runs already: joins N simulated agents
// (simulated_agent.h) of R workers each over C connections, and prints one line of JSON. The agents
// are divided among P processes: a real one has a process of its own, and what gRPC does with each
// message takes the longer the more streams there are in a process.
//
//     start_many --target HOST:PORT --run-id NAME [--nodes 64] [--ranks 10] [--connections 64]
//                [--processes 4] [--at-once N] [--service-pid PID]
//                [--insecure | --tls-cert FILE --tls-key FILE --tls-ca FILE]
//
// Times are from the first agent's beginning to the last one's reaching a milestone: accepted by
// the service, told its ranks, all its workers have the id, all its workers are through the
// barrier. The ranks are checked: each is given once and none is left out. Channels and
// certificates are made before, since each node makes its own; connections are made within the
// time. With the run's secret (DDPRUN_TOKEN) a certificate is one node's, so there are as many
// connections as nodes, and their attempts to connect, each of which has five seconds, are more
// than two cores can serve if all begin at once: --at-once.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/process/resource_limit.h"
#include "rendezvous/security/credentials.h"
#include "tests/bench/process_usage.h"
#include "tests/bench/simulated_agent.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{300};
// How often it is seen to that agents say that they are there.
constexpr std::chrono::milliseconds kBeatInterval{100};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "start_many: %s\n", what.c_str());
  std::_Exit(1);
}

struct Arguments {
  std::string target;
  std::string run_id;
  std::string service_pid;
  int nodes = 64;
  int ranks = 10;
  int connections = 64;
  int processes = 4;
  int at_once = 1'000'000;
  SecurityOptions security;
};

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  const std::map<std::string, std::string*> texts = {{"--target", &arguments.target},
                                                     {"--run-id", &arguments.run_id},
                                                     {"--service-pid", &arguments.service_pid},
                                                     {"--tls-cert", &arguments.security.tls_cert},
                                                     {"--tls-key", &arguments.security.tls_key},
                                                     {"--tls-ca", &arguments.security.tls_ca}};
  const std::map<std::string, int*> numbers = {{"--nodes", &arguments.nodes},
                                               {"--ranks", &arguments.ranks},
                                               {"--connections", &arguments.connections},
                                               {"--processes", &arguments.processes},
                                               {"--at-once", &arguments.at_once}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--insecure") {
      arguments.security.insecure = true;
    } else if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = value;
      ++i;
    } else if (const auto number = numbers.find(name); number != numbers.end()) {
      *number->second = std::atoi(value.c_str());
      ++i;
    } else {
      Die("unknown argument " + name);
    }
  }
  if (arguments.target.empty() || arguments.run_id.empty()) Die("--target and --run-id are needed");
  for (const auto& [name, number] : numbers) {
    if (*number < 1) Die(name + " must be at least 1");
  }
  arguments.connections = std::min(arguments.connections, arguments.nodes);
  arguments.processes = std::min(arguments.processes, arguments.connections);
  return arguments;
}

// ---- A part of the agents, in a process of its own

using Agents = std::vector<std::unique_ptr<SimulatedAgent>>;

// What the processes tell each other, in memory that they share. All times are the monotonic
// clock's, which is one for all of them.
struct PartResult {
  TimePoint last[kMilestones];
  int messages = 0;
  int messages_max = 0;
  int heartbeats = 0;
};
struct NodeResult {
  int node_rank = -1;
  int node_count = 0;
  int rank_first = 0;
  int world_size = 0;
};

// The other end is closed when the other process has ended, with whatever it had to say on stderr.
void Send(int pipe) {
  const char byte = 0;
  if (write(pipe, &byte, 1) != 1) Die("a process of the benchmark is gone");
}
void Receive(int pipe) {
  char byte = 0;
  if (read(pipe, &byte, 1) != 1) Die("a process of the benchmark is gone");
}

class Part {
 public:
  Part(const Arguments& arguments, int index, PartResult* result, NodeResult* nodes)
      : arguments_(arguments),
        index_(index),
        progress_(Share(arguments.nodes)),
        result_(result),
        nodes_(nodes) {}

  [[noreturn]] void Run(const Security& security, int pipe) {
    Prepare(security);
    Send(pipe);
    Receive(pipe);
    BeginAll();
    WaitForAll(Milestone::kPassedBarrier);
    Report();
    Send(pipe);
    Receive(pipe);
    for (const auto& agent : agents_) agent->Succeed();
    WaitForAll(Milestone::kEnded);
    result_->last[static_cast<std::size_t>(Milestone::kEnded)] = progress_.last(Milestone::kEnded);
    for (const auto& agent : agents_) agent->End();
    Send(pipe);
    // Streams and channels need not be taken down one by one.
    std::_Exit(0);
  }

 private:
  // Of `whole`, the rest of the division spread over the first ones.
  int Share(int whole) const {
    return whole / arguments_.processes + (index_ < whole % arguments_.processes ? 1 : 0);
  }
  // The nodes of this process are every so-manieth of all.
  int NodeOf(int i) const { return i * arguments_.processes + index_; }

  void Prepare(const Security& security) {
    std::vector<std::shared_ptr<ServiceChannel>> channels;
    for (int i = 0; i < Share(arguments_.connections); ++i) {
      auto credentials = security.ForNode(arguments_.run_id, SimulatedAgent::NameOf(NodeOf(i)));
      if (!credentials.ok()) Die(std::string(credentials.status().message()));
      const bool derived = credentials->has_value() && (*credentials)->derived;
      if (derived && arguments_.connections < arguments_.nodes) {
        Die("a certificate of the run's secret is one node's: give as many --connections as "
            "--nodes");
      }
      channels.push_back(MakeServiceChannel(arguments_.target, *std::move(credentials)));
    }
    for (int i = 0; i < Share(arguments_.nodes); ++i) {
      agents_.push_back(std::make_unique<SimulatedAgent>(
          SimulatedAgent::Options{
              .channel = channels[static_cast<std::size_t>(i) % channels.size()],
              .run_id = arguments_.run_id,
              .index = NodeOf(i),
              .nodes = arguments_.nodes,
              .workers = arguments_.ranks,
              .patience = kPatience},
          progress_));
    }
  }

  // At most so many are on their way to being accepted at a time. Those that are here already say
  // so while others begin.
  void BeginAll() {
    TimePoint beat = Clock::now() + kBeatInterval;
    for (int i = 0; i < static_cast<int>(agents_.size()); ++i) {
      agents_[static_cast<std::size_t>(i)]->Begin();
      const int accepted = i + 1 - Share(arguments_.at_once);
      while (!progress_.WaitFor(Milestone::kAccepted, accepted, kBeatInterval)) {
        if (!progress_.failure().empty()) Die(progress_.failure());
        BeatIfDue(i, beat);
      }
      BeatIfDue(i, beat);
    }
  }

  void BeatIfDue(int begun, TimePoint& beat) {
    const TimePoint now = Clock::now();
    if (now < beat) return;
    for (int i = 0; i <= begun; ++i) agents_[static_cast<std::size_t>(i)]->BeatIfDue(now);
    beat = Clock::now() + kBeatInterval;
  }

  void WaitForAll(Milestone milestone) {
    const TimePoint deadline = Clock::now() + kPatience;
    while (!progress_.WaitFor(milestone, kBeatInterval)) {
      const TimePoint now = Clock::now();
      if (!progress_.failure().empty()) Die(progress_.failure());
      if (now > deadline) {
        Die(absl::StrCat("only ", progress_.count(milestone), " of ", agents_.size(),
                         " nodes reached milestone ", static_cast<int>(milestone)));
      }
      for (const auto& agent : agents_) agent->BeatIfDue(now);
    }
  }

  void Report() {
    for (std::size_t i = 0; i < kMilestones; ++i) {
      result_->last[i] = progress_.last(static_cast<Milestone>(i));
    }
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      const SimulatedAgent::Sent sent = agents_[i]->sent();
      result_->messages += sent.messages;
      result_->messages_max = std::max(result_->messages_max, sent.messages);
      result_->heartbeats += sent.heartbeats;
      const std::optional<Start> start = agents_[i]->start();
      if (!start) continue;
      nodes_[NodeOf(static_cast<int>(i))] = {start->node_rank, start->node_count, start->rank_first,
                                             start->world_size};
    }
  }

  const Arguments& arguments_;
  const int index_;
  AgentsProgress progress_;
  PartResult* const result_;
  NodeResult* const nodes_;  // of all processes
  Agents agents_;
};

// ---- The parent

template <typename T>
T* Shared(int count) {
  void* memory = mmap(nullptr, sizeof(T) * static_cast<std::size_t>(count), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Die("no shared memory");
  return new (memory) T[static_cast<std::size_t>(count)];
}

class Whole {
 public:
  explicit Whole(const Arguments& arguments)
      : arguments_(arguments),
        results_(Shared<PartResult>(arguments.processes)),
        nodes_(Shared<NodeResult>(arguments.nodes)) {}

  int Run(const Security& security) {
    Fork(security);
    ForEach(Receive);
    const Used service_before = UsedBy(arguments_.service_pid);
    const Used agents_before = UsedByAgents();
    const TimePoint begin = Clock::now();
    ForEach(Send);
    ForEach(Receive);
    const Used service_after = UsedBy(arguments_.service_pid);
    const Used agents_after = UsedByAgents();
    const TimePoint end_begin = Clock::now();
    ForEach(Send);
    ForEach(Receive);
    const auto seconds = [&](Milestone milestone) {
      return std::chrono::duration<double>(Last(milestone) - begin).count();
    };
    nlohmann::json report = Counted();
    report.update(
        {{"accepted_s", seconds(Milestone::kAccepted)},
         {"ranks_known_s", seconds(Milestone::kStarted)},
         {"id_s", seconds(Milestone::kHaveId)},
         {"total_s", seconds(Milestone::kPassedBarrier)},
         {"end_s", std::chrono::duration<double>(Last(Milestone::kEnded) - end_begin).count()},
         {"service_cpu_s", service_after.cpu_seconds - service_before.cpu_seconds},
         {"service_mb_before", service_before.resident_mb},
         {"service_mb", service_after.resident_mb},
         {"agents_cpu_s", agents_after.cpu_seconds - agents_before.cpu_seconds},
         {"agents_mb", agents_after.resident_mb}});
    std::printf("%s\n", report.dump().c_str());
    return RanksAreRight() ? 0 : 1;
  }

 private:
  // Before any thread or use of gRPC.
  void Fork(const Security& security) {
    for (int i = 0; i < arguments_.processes; ++i) {
      int pipes[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipes) != 0) Die("no socket pair");
      const pid_t pid = fork();
      if (pid == 0) {
        close(pipes[0]);
        Part(arguments_, i, &results_[i], nodes_).Run(security, pipes[1]);
      }
      close(pipes[1]);
      pipes_.push_back(pipes[0]);
      pids_.push_back(std::to_string(pid));
    }
  }

  void ForEach(void (*what)(int)) const {
    for (const int pipe : pipes_) what(pipe);
  }

  Used UsedByAgents() const {
    Used sum;
    for (const std::string& pid : pids_) {
      const Used one = UsedBy(pid);
      sum.cpu_seconds += one.cpu_seconds;
      sum.resident_mb += one.resident_mb;
    }
    return sum;
  }

  TimePoint Last(Milestone milestone) const {
    TimePoint last{};
    for (int i = 0; i < arguments_.processes; ++i) {
      last = std::max(last, results_[i].last[static_cast<std::size_t>(milestone)]);
    }
    return last;
  }

  nlohmann::json Counted() const {
    int most = 0;
    int heartbeats = 0;
    double messages = 0;
    for (int i = 0; i < arguments_.processes; ++i) {
      messages += results_[i].messages;
      most = std::max(most, results_[i].messages_max);
      heartbeats += results_[i].heartbeats;
    }
    return {{"nodes", arguments_.nodes},
            {"ranks", arguments_.ranks},
            {"connections", arguments_.connections},
            {"processes", arguments_.processes},
            {"ranks_right", RanksAreRight()},
            {"messages_mean", messages / arguments_.nodes},
            {"messages_max", most},
            {"heartbeats", heartbeats}};
  }

  // Whether each node rank is given once, and each rank belongs to one node.
  bool RanksAreRight() const {
    std::vector<bool> given(static_cast<std::size_t>(arguments_.nodes));
    for (int i = 0; i < arguments_.nodes; ++i) {
      const NodeResult& node = nodes_[i];
      if (node.node_rank < 0 || node.node_rank >= arguments_.nodes) return false;
      const auto rank = static_cast<std::size_t>(node.node_rank);
      if (given[rank] || node.node_count != arguments_.nodes) return false;
      given[rank] = true;
      if (node.rank_first != node.node_rank * arguments_.ranks) return false;
      if (node.world_size != arguments_.nodes * arguments_.ranks) return false;
    }
    return true;
  }

  const Arguments& arguments_;
  PartResult* const results_;
  NodeResult* const nodes_;
  std::vector<int> pipes_;
  std::vector<std::string> pids_;
};

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  auto token = ddprun::TakeTokenVariable();
  const ddprun::Arguments arguments = ddprun::Parse(argc, argv);
  auto security =
      ddprun::Security::Open(arguments.security, std::move(token), ddprun::ReadVariable);
  if (!security.ok()) ddprun::Die(std::string(security.status().message()));
  ddprun::RaiseFileLimit();
  return ddprun::Whole(arguments).Run(*security);
}
