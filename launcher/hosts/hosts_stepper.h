// SPDX-License-Identifier: Apache-2.0
// One call of StepHead(): the state, the time of the event, and the effects so far. Internal to
// hosts_head.cc (events and the end of a run) and hosts_gathering.cc (the start of a run).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/hosts/hosts_head.h"

namespace ddprun {

class HeadStepper {
 public:
  HeadStepper(HeadState& state, TimePoint now, const HeadConfig& config)
      : s_(state), now_(now), config_(config), plan_(config.plan) {}

  HeadEffects Take() { return std::move(effects_); }

  void operator()(const HeadBegins&);
  void operator()(const MessageReceived& received);
  void operator()(const LineReceived& received);
  void operator()(const TransportEnded& ended);
  void operator()(const HeadSignaled& event);
  void operator()(const HeadDeadlinePassed&);

 private:
  using StopStep = HeadState::StopStep;

  static std::size_t Index(int number) { return static_cast<std::size_t>(number); }
  HeadNode& Node(int number) { return s_.nodes[Index(number)]; }
  const Transport& TransportAt(int number) const { return plan_.transports[Index(number)]; }
  const std::string& Name(int number) const { return plan_.names[Index(number)]; }
  int TransportOf(int node) const { return plan_.transports.size() == 1 ? 0 : node; }
  int Transports() const { return static_cast<int>(plan_.transports.size()); }
  int Nodes() const { return static_cast<int>(s_.nodes.size()); }
  bool IsOver(const std::optional<TimePoint>& deadline) const;
  int CountInPhase(NodePhase phase) const;

  // ---- Gathering

  void StartMore();
  void OnHello(int number, const Hello& hello);
  bool StartsAgain(const TransportEnded& ended);
  void Drop(int number, const std::string& sentence);
  void LaunchIfReady();
  void LetOthersGo(int port);
  Go GoFor(int number, int port) const;
  void SendTo(int number, Go go);
  int NodesWanted() const;
  std::string NodesFlag() const;
  static std::string PortFlag(int port);
  static std::string EndpointFlag(const Endpoint& endpoint);
  std::string Awaited() const;
  void ShowAwaited();
  void GiveUpAwaited();

  // ---- Running

  void EndNode(int number, const TransportEnded& ended);
  void StopIfTooFew();
  void Forward(int signal);
  void PassOn(int signal);
  void OrderToStop(int transport, int signal);
  void Show(int number, const std::string& line);

  // ---- The end

  void StopBy(StopStep stop, std::chrono::milliseconds time);
  void GiveUp(EndHead failure);
  void StopHarder();
  void FinishIfAllEnded();
  void Finish();

  HeadState& s_;
  const TimePoint now_;
  const HeadConfig& config_;
  const HostsPlan& plan_;
  HeadEffects effects_;
};

// True if the node reported the end of a run that succeeded, was drained (`ddpctl drain`) or was
// never started. An exit code of 0 alone proves nothing: a wrapper script, another program or a
// broken ddprun may return it too.
bool EndedWell(const HeadNode& node);

// The result when all nodes have ended or have been given up. Exit code 0 only if the node that
// hosts the service reported success, no node reported a different end, and as many nodes as the
// run needs reported it (or were in the run and lost their connection to the head at its end).
EndHead VerdictOfNodes(const HeadState& state, const HeadConfig& config);

// With the exit code, as printed.
std::string FailureText(const std::string& sentence, int exit_code);

// The head received this signal.
std::string InterruptedText(int signal);

}  // namespace ddprun
