// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_stepper.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "launcher/hosts/hosts_advice.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

const HeadNode& NodeAt(const HeadState& state, int number) {
  return state.nodes[static_cast<std::size_t>(number)];
}

int ExitCodeOf(const HeadState& state, const HostsPlan& plan, int number) {
  const HeadNode& node = NodeAt(state, number);
  const std::size_t transport = plan.transports.size() == 1 ? 0 : static_cast<std::size_t>(number);
  return node.outcome.has_value() ? NodeExitCode(plan.transports[transport].kind, *node.outcome)
                                  : 1;
}

// True if the node was in the run when its connection ended, so that its report is unknown.
bool WasLostInTheRun(const HeadNode& node) {
  return node.joined && node.outcome.has_value() && !IsSuccess(*node.outcome) &&
         !node.verdict.has_value();
}

// The names of the first two nodes that reported different ends, or empty.
std::string Contradiction(const HeadState& state, const HostsPlan& plan) {
  const HeadNode* known = nullptr;
  for (const HeadNode& node : state.nodes) {
    if (!node.finished.has_value()) continue;
    if (known == nullptr) known = &node;
    if (known->finished == node.finished) continue;
    const auto name = [&](const HeadNode& of) {
      return plan.names[static_cast<std::size_t>(&of - state.nodes.data())];
    };
    return absl::StrCat(name(*known), " and ", name(node));
  }
  return "";
}

bool Succeeded(const HeadState& state, const HostsPlan& plan) {
  const Finished* reported = nullptr;
  int nodes = 0;
  int wanted = 0;
  for (const HeadNode& node : state.nodes) {
    if (node.node_rank.has_value()) ++wanted;
    if (node.finished.has_value()) {
      if (reported != nullptr && *reported != *node.finished) return false;
      reported = &*node.finished;
      ++nodes;
    } else if (WasLostInTheRun(node)) {
      ++nodes;
    }
  }
  const bool service_reported =
      NodeAt(state, *state.first_node).finished.has_value() || plan.endpoint.has_value();
  return reported != nullptr && service_reported && nodes >= std::min(plan.nodes_min, wanted);
}

// The node whose verdict is printed, or -1. The first node hosts the service, so its verdict is
// that of the run, unless the node was lost or the head ended it.
int BestVerdict(const HeadState& state) {
  if (state.first_lost == state.first_node) return -1;
  const HeadNode& first = NodeAt(state, *state.first_node);
  if (first.verdict.has_value() && !first.stopped_by_head) return *state.first_node;
  if (state.first_lost.has_value()) return -1;
  for (int number = 0; number < static_cast<int>(state.nodes.size()); ++number) {
    if (NodeAt(state, number).verdict.has_value()) return number;
  }
  return -1;
}

}  // namespace

bool EndedWell(const HeadNode& node) {
  const bool let_go =
      node.verdict.has_value() && node.outcome.has_value() && IsSuccess(*node.outcome);
  return node.finished.has_value() || let_go || node.dismissed;
}

EndHead VerdictOfNodes(const HeadState& state, const HeadConfig& config) {
  if (state.failure.has_value()) return *state.failure;
  if (Succeeded(state, config.plan)) return EndHead{0, ""};
  const int best = BestVerdict(state);
  if (best >= 0) {
    // A drained node exits with 0, but the run did not finish.
    const int exit_code = std::max(1, ExitCodeOf(state, config.plan, best));
    const bool interrupted =
        state.signal.has_value() && exit_code == ExitCodeOfSignal(*state.signal);
    if (!interrupted) return EndHead{exit_code, *NodeAt(state, best).verdict};
  }
  if (state.signal.has_value())
    return EndHead{ExitCodeOfSignal(*state.signal), InterruptedText(*state.signal)};
  if (state.first_lost.has_value()) {
    const int exit_code = std::max(1, ExitCodeOf(state, config.plan, *state.first_lost));
    return EndHead{exit_code, FailureText(NodeAt(state, *state.first_lost).sentence, exit_code)};
  }
  if (const std::string names = Contradiction(state, config.plan); !names.empty()) {
    return EndHead{1, FailureText(absl::StrCat(names,
                                               " reported different ends of the run; do all "
                                               "hosts start the same ddprun?"),
                                  1)};
  }
  return EndHead{
      1, FailureText("nodes did not stop when ordered to; look for ddprun on the hosts", 1)};
}

std::string FailureText(const std::string& sentence, int exit_code) {
  return absl::StrCat("ddprun: run failed: ", sentence, "\n  exit code: ", exit_code, "\n");
}

std::string InterruptedText(int signal) {
  return absl::StrCat("ddprun: run ended: ddprun got ", SignalName(signal),
                      ", and has stopped all nodes\n  exit code: ", ExitCodeOfSignal(signal), "\n");
}

}  // namespace ddprun
