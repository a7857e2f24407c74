// SPDX-License-Identifier: Apache-2.0
// How a run of hosts begins: their nodes are started, the first one opens the service, the others
// follow.
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "launcher/base/limits.h"
#include "launcher/hosts/hosts_advice.h"
#include "launcher/hosts/hosts_stepper.h"
#include "launcher/options/run_flags.h"
#include "proto/text.h"
#include "proto/version.h"

namespace ddprun {

bool IsLoopback(const std::string& host) {
  return absl::StartsWith(host, "127.") || host == "::1" || host == "localhost";
}

void HeadStepper::StartMore() {
  if (s_.phase != HeadPhase::kGathering) return;
  int starting = CountInPhase(NodePhase::kStarting);
  for (int transport = 0; transport < Transports() && starting < kHostsStartingMax; ++transport) {
    if (Node(TransportAt(transport).nodes.front()).phase != NodePhase::kWaiting) continue;
    for (const int node : TransportAt(transport).nodes) Node(node).phase = NodePhase::kStarting;
    s_.live[Index(transport)] = true;
    ++starting;
    effects_.emplace_back(StartTransport{transport, 0});
  }
}

void HeadStepper::OnHello(int number, const Hello& hello) {
  HeadNode& node = Node(number);
  if (s_.phase != HeadPhase::kGathering || node.phase != NodePhase::kStarting) return;
  if (hello.control_pipe != kControlPipeVersion || hello.protocol != kProtocolVersion) {
    effects_.emplace_back(CloseControlPipe{TransportOf(number)});
    Drop(number, WhyRefused(Name(number), hello));
    return;
  }
  node.hello = hello;
  node.words.clear();
  node.phase = NodePhase::kReady;
  StartMore();
  LaunchIfReady();
}

// ddprun does not have the same path on the host: tries the next command.
bool HeadStepper::StartsAgain(const TransportEnded& ended) {
  int& attempt = s_.attempts[Index(ended.transport)];
  const HeadNode& node = Node(TransportAt(ended.transport).nodes.front());
  if (s_.phase != HeadPhase::kGathering || node.phase != NodePhase::kStarting ||
      ended.outcome != Outcome(Exited{127}) ||
      Index(attempt + 1) >= TransportAt(ended.transport).commands.size()) {
    return false;
  }
  s_.live[Index(ended.transport)] = true;
  effects_.emplace_back(StartTransport{ended.transport, ++attempt});
  return true;
}

void HeadStepper::Drop(int number, const std::string& sentence) {
  HeadNode& node = Node(number);
  node.phase = NodePhase::kEnded;
  node.sentence = sentence;
  if (s_.phase != HeadPhase::kGathering) return;
  if (Nodes() - CountInPhase(NodePhase::kEnded) < plan_.nodes_min) {
    return GiveUp(EndHead{1, FailureText(sentence, 1)});
  }
  node.dismissed = true;
  effects_.emplace_back(
      ShowLine{absl::StrCat("ddprun: ", sentence, "; going on without it, as --nnodes allows")});
  LaunchIfReady();
}

void HeadStepper::LaunchIfReady() {
  if (s_.phase != HeadPhase::kGathering || CountInPhase(NodePhase::kWaiting) > 0 ||
      CountInPhase(NodePhase::kStarting) > 0) {
    return;
  }
  s_.gather_deadline.reset();
  s_.notice_deadline.reset();
  int rank = 0;
  for (int number = 0; number < Nodes(); ++number) {
    HeadNode& node = Node(number);
    if (node.phase != NodePhase::kReady) continue;
    if (!s_.first_node.has_value()) s_.first_node = number;
    if (rank < plan_.nodes_max) node.node_rank = rank++;
  }
  for (int transport = 0; transport < Transports(); ++transport) {
    if (s_.live[Index(transport)]) effects_.emplace_back(SendSetup{transport});
  }
  if (plan_.endpoint.has_value() || NodesWanted() == 1) return LetOthersGo(0);
  s_.phase = HeadPhase::kMeeting;
  s_.gather_deadline = now_ + config_.join_timeout;
  Go go{.node = *s_.first_node, .node_rank = 0, .serve = plan_.master_port == 0, .flags = {}};
  go.flags = {NodesFlag(), "--master-addr"_flag.With(ServiceAddress(s_, config_))};
  if (plan_.master_port != 0) go.flags.push_back(PortFlag(plan_.master_port));
  SendTo(*s_.first_node, std::move(go));
}

// Starts all ready nodes: every node but the one with the service, or every node if the service is
// elsewhere.
void HeadStepper::LetOthersGo(int port) {
  s_.phase = HeadPhase::kRunning;
  s_.gather_deadline.reset();
  bool all_told = false;
  for (int number = 0; number < Nodes() && !all_told; ++number) {
    HeadNode& node = Node(number);
    if (node.phase != NodePhase::kReady) continue;
    if (!node.node_rank.has_value() && port == 0 && !plan_.endpoint.has_value()) {
      // A run of one node has no service at which a spare could stand by.
      node.phase = NodePhase::kEnded;
      node.dismissed = true;
      effects_.emplace_back(CloseControlPipe{TransportOf(number)});
      continue;
    }
    SendTo(number, GoFor(number, port));
    if (TransportAt(TransportOf(number)).kind == TransportKind::kSrun) {
      for (HeadNode& other : s_.nodes) other.phase = NodePhase::kRunning;
      all_told = true;
    }
  }
}

Go HeadStepper::GoFor(int number, int port) const {
  const HeadNode& node = s_.nodes[Index(number)];
  const bool srun = TransportAt(TransportOf(number)).kind == TransportKind::kSrun;
  Go go{.node = srun ? -1 : number, .node_rank = srun ? std::nullopt : node.node_rank, .flags = {}};
  go.flags = {NodesFlag()};
  if (plan_.endpoint.has_value()) {
    go.flags.push_back(EndpointFlag(*plan_.endpoint));
  } else if (port != 0 && !srun && !node.node_rank.has_value()) {
    go.flags.push_back(EndpointFlag({ServiceAddress(s_, config_), port, {}}));  // a spare
  } else if (port != 0) {
    go.flags.push_back("--master-addr"_flag.With(ServiceAddress(s_, config_)));
    go.flags.push_back(PortFlag(port));
  } else if (!plan_.master_addr.empty()) {
    // One node needs no rendezvous; the address is for its workers.
    go.flags.push_back("--master-addr"_flag.With(plan_.master_addr));
  }
  if (port == 0 && plan_.master_port != 0) go.flags.push_back(PortFlag(plan_.master_port));
  return go;
}

void HeadStepper::SendTo(int number, Go go) {
  Node(number).phase = NodePhase::kRunning;
  effects_.emplace_back(SendGo{TransportOf(number), std::move(go)});
}

int HeadStepper::NodesWanted() const {
  const auto ranked = std::count_if(s_.nodes.begin(), s_.nodes.end(), [](const HeadNode& node) {
    return node.node_rank.has_value();
  });
  return static_cast<int>(ranked);
}

std::string HeadStepper::NodesFlag() const {
  return "--nnodes"_flag.With(absl::StrCat(plan_.nodes_min, ":", NodesWanted()));
}

std::string HeadStepper::PortFlag(int port) { return "--master-port"_flag.With(port); }

std::string HeadStepper::EndpointFlag(const Endpoint& endpoint) {
  return "--rdzv-endpoint"_flag.With(EndpointText(endpoint));
}

std::string HeadStepper::Awaited() const {
  std::vector<std::string> names;
  for (int number = 0; number < Nodes(); ++number) {
    const NodePhase phase = s_.nodes[Index(number)].phase;
    if (phase == NodePhase::kStarting || phase == NodePhase::kWaiting)
      names.push_back(Name(number));
  }
  constexpr std::size_t kShown = 8;
  const std::size_t count = names.size();
  if (count > kShown) names.resize(kShown);
  std::string text = absl::StrJoin(names, ", ");
  if (count > kShown) absl::StrAppend(&text, " and ", count - kShown, " more");
  return text;
}

void HeadStepper::ShowAwaited() {
  effects_.emplace_back(ShowLine{absl::StrCat("ddprun: waiting for ddprun on ", Awaited(),
                                              " to answer (--join-timeout says how long)")});
}

void HeadStepper::GiveUpAwaited() {
  if (s_.phase == HeadPhase::kMeeting) {
    const int exit_code = 1;
    return GiveUp(EndHead{
        exit_code, FailureText(absl::StrCat("ddprun on ", Name(*s_.first_node),
                                            " has not opened the rendezvous service in time; see "
                                            "its messages above"),
                               exit_code)});
  }
  for (int number = 0; number < Nodes() && s_.phase == HeadPhase::kGathering; ++number) {
    if (Node(number).phase != NodePhase::kStarting && Node(number).phase != NodePhase::kWaiting)
      continue;
    if (s_.live[Index(TransportOf(number))])
      effects_.emplace_back(EndTransport{TransportOf(number), SIGTERM});
    Drop(number, absl::StrCat("ddprun on ", Name(number), " has not answered in time; try `ssh ",
                              Name(number), " true` by hand, or wait longer (--join-timeout)"));
  }
}

std::string ServiceAddress(const HeadState& state, const HeadConfig& config) {
  if (!config.plan.master_addr.empty()) return config.plan.master_addr;
  const auto first = static_cast<std::size_t>(state.first_node.value_or(0));
  std::vector<std::string> candidates;
  if (state.nodes[first].hello.has_value())
    candidates.push_back(state.nodes[first].hello->own_address);
  const bool is_here = config.plan.transports.size() > first &&
                       config.plan.transports[first].kind == TransportKind::kDirect;
  bool elsewhere = false;
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const bool here = config.plan.transports.size() > i &&
                      config.plan.transports[i].kind == TransportKind::kDirect;
    elsewhere = elsewhere || !here;
    if (is_here && !here && state.nodes[i].hello.has_value())
      candidates.push_back(state.nodes[i].hello->head_address);
  }
  candidates.push_back(config.addresses[first]);
  for (const std::string& candidate : candidates) {
    if (!candidate.empty() && (!elsewhere || !IsLoopback(candidate))) return candidate;
  }
  return WithoutUser(config.plan.names[first]);
}

}  // namespace ddprun
