// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_head.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"
#include "launcher/hosts/hosts_advice.h"
#include "launcher/hosts/hosts_verdict.h"
#include "proto/version.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

using Stop = HeadState::Stop;

bool IsLoopback(const std::string& address) {
  return absl::StartsWith(address, "127.") || address == "::1" || address == "localhost";
}

// One step: the state, what is known about the moment, and the effects so far.
class HeadStepper {
 public:
  HeadStepper(HeadState& state, TimePoint now, const HeadConfig& config)
      : s_(state), now_(now), config_(config), plan_(config.plan) {}

  HeadEffects Take() { return std::move(effects_); }

  void operator()(const HeadBegins&) {
    s_.nodes.resize(plan_.names.size());
    s_.attempts.assign(plan_.transports.size(), 0);
    s_.live.assign(plan_.transports.size(), false);
    s_.gather_deadline = now_ + config_.join_timeout;
    s_.notice_deadline = now_ + kHostsNoticeDelay;
    StartMore();
  }

  void operator()(const MessageReceived& received) {
    HeadNode& node = Node(received.node);
    if (const auto* hello = std::get_if<Hello>(&received.message)) {
      HearHello(received.node, *hello);
    } else if (const auto* serving = std::get_if<Serving>(&received.message)) {
      if (s_.phase == HeadPhase::kMeeting && received.node == s_.first_node)
        LetOthersGo(serving->port);
    } else if (std::holds_alternative<Joined>(received.message)) {
      node.joined = true;
    } else if (const auto* verdict = std::get_if<NodeVerdict>(&received.message)) {
      node.verdict = verdict->text;
      node.stopped_by_head = s_.phase == HeadPhase::kStopping;
    } else if (const auto* finished = std::get_if<Finished>(&received.message)) {
      // Only a node that was told to begin knows the run and can have finished it.
      if (node.phase == NodePhase::kRunning && finished->run_id == plan_.run_id)
        node.finished = *finished;
    }
  }

  void operator()(const LineReceived& received) {
    HeadNode& node = Node(received.node);
    // Another machine's bytes: they must not move this terminal's cursor or forge a line.
    const std::string line = Printable(received.line);
    node.words.push_back(line);
    if (node.words.size() > kHostWordsMax) node.words.pop_front();
    // What a login shell or ssh says on the way matters if the way fails, and is told then.
    if (node.hello.has_value()) Show(received.node, line);
  }

  void operator()(const TransportEnded& ended) {
    s_.live[Index(ended.transport)] = false;
    if (StartsAgain(ended)) return;
    for (const int number : TransportAt(ended.transport).nodes) EndNode(number, ended);
    switch (s_.phase) {
      case HeadPhase::kGathering:
        StartMore();
        LaunchIfReady();
        break;
      case HeadPhase::kMeeting:
      case HeadPhase::kRunning:
        StopIfTooFew();
        break;
      case HeadPhase::kStopping:
      case HeadPhase::kEnded:
        break;
    }
    FinishIfAllEnded();
  }

  void operator()(const HeadSignaled& event) {
    if (!event.ends) return Forward(event.signal);
    if (s_.signals > 0 && now_ - s_.signal_time < kSignalEchoTime) return;
    if (s_.signals++ == 0) {
      s_.signal = event.signal;
      s_.signal_time = now_;
    }
    switch (s_.phase) {
      case HeadPhase::kGathering:
        return GiveUp(EndHead{128 + event.signal, InterruptedText(*s_.signal)});
      case HeadPhase::kMeeting:
      case HeadPhase::kRunning:
      case HeadPhase::kStopping:
        // The nodes that were told to stop take a signal for a second one, which kills their
        // workers.
        if (s_.signals == 1 && s_.told_to_stop) return;
        PassOn(event.signal);
        // The nodes do what is asked of them in their own time; these are for one that does not.
        if (s_.signals == 1) {
          StopBy(Stop::kCloseNext, config_.term_timeout + kKillTimeout + kHostEndTimeout);
        } else {
          StopBy(Stop::kCloseNext, s_.signals == 2 ? kHostEndTimeout : std::chrono::seconds(0));
        }
        return;
      case HeadPhase::kEnded:
        return;
    }
  }

  void operator()(const HeadDeadlinePassed&) {
    if (s_.phase == HeadPhase::kEnded) return;
    if (IsOver(s_.notice_deadline)) {
      s_.notice_deadline.reset();
      if (s_.phase == HeadPhase::kGathering) ShowAwaited();
    }
    if (IsOver(s_.gather_deadline)) {
      s_.gather_deadline.reset();
      GiveAwaitedUp();
    }
    if (IsOver(s_.stop_deadline)) StopHarder();
  }

 private:
  static std::size_t Index(int number) { return static_cast<std::size_t>(number); }
  HeadNode& Node(int number) { return s_.nodes[Index(number)]; }
  const Transport& TransportAt(int number) const { return plan_.transports[Index(number)]; }
  const std::string& Name(int number) const { return plan_.names[Index(number)]; }
  int TransportOf(int node) const { return plan_.transports.size() == 1 ? 0 : node; }
  int Transports() const { return static_cast<int>(plan_.transports.size()); }
  int Nodes() const { return static_cast<int>(s_.nodes.size()); }
  bool IsOver(const std::optional<TimePoint>& deadline) const {
    return deadline.has_value() && *deadline <= now_;
  }

  int CountInPhase(NodePhase phase) const {
    return static_cast<int>(
        std::count_if(s_.nodes.begin(), s_.nodes.end(),
                      [phase](const HeadNode& node) { return node.phase == phase; }));
  }

  // ---- Gathering

  void StartMore() {
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

  void HearHello(int number, const Hello& hello) {
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

  // ddprun is not where it is here: perhaps it is in the PATH there.
  bool StartsAgain(const TransportEnded& ended) {
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

  void Drop(int number, const std::string& sentence) {
    HeadNode& node = Node(number);
    node.phase = NodePhase::kEnded;
    node.sentence = sentence;
    if (s_.phase != HeadPhase::kGathering) return;
    if (Nodes() - CountInPhase(NodePhase::kEnded) < plan_.nodes_min) {
      return GiveUp(EndHead{1, FailureText(sentence, 1)});
    }
    effects_.emplace_back(
        ShowLine{absl::StrCat("ddprun: ", sentence, "; going on without it, as --nnodes allows")});
    LaunchIfReady();
  }

  void LaunchIfReady() {
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
    go.flags = {NodesFlag(), absl::StrCat("--master-addr=", ServiceAddress(s_, config_))};
    if (plan_.master_port != 0) go.flags.push_back(PortFlag(plan_.master_port));
    SendTo(*s_.first_node, std::move(go));
  }

  // All but the one that has the service, and that one too where it is elsewhere.
  void LetOthersGo(int port) {
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

  Go GoFor(int number, int port) const {
    const HeadNode& node = s_.nodes[Index(number)];
    const bool srun = TransportAt(TransportOf(number)).kind == TransportKind::kSrun;
    Go go{
        .node = srun ? -1 : number, .node_rank = srun ? std::nullopt : node.node_rank, .flags = {}};
    go.flags = {NodesFlag()};
    if (plan_.endpoint.has_value()) {
      go.flags.push_back(EndpointFlag(plan_.endpoint->host, plan_.endpoint->port));
    } else if (port != 0 && !srun && !node.node_rank.has_value()) {
      go.flags.push_back(EndpointFlag(ServiceAddress(s_, config_), port));  // a spare
    } else if (port != 0) {
      go.flags.push_back(absl::StrCat("--master-addr=", ServiceAddress(s_, config_)));
      go.flags.push_back(PortFlag(port));
    } else if (!plan_.master_addr.empty()) {
      // One node: nobody is met, and the address is its workers'.
      go.flags.push_back(absl::StrCat("--master-addr=", plan_.master_addr));
    }
    if (port == 0 && plan_.master_port != 0) go.flags.push_back(PortFlag(plan_.master_port));
    return go;
  }

  void SendTo(int number, Go go) {
    Node(number).phase = NodePhase::kRunning;
    effects_.emplace_back(SendGo{TransportOf(number), std::move(go)});
  }

  int NodesWanted() const {
    const auto ranked = std::count_if(s_.nodes.begin(), s_.nodes.end(), [](const HeadNode& node) {
      return node.node_rank.has_value();
    });
    return static_cast<int>(ranked);
  }

  std::string NodesFlag() const {
    return absl::StrCat("--nnodes=", plan_.nodes_min, ":", NodesWanted());
  }
  static std::string PortFlag(int port) { return absl::StrCat("--master-port=", port); }
  static std::string EndpointFlag(const std::string& host, int port) {
    return absl::StrContains(host, ':') ? absl::StrCat("--rdzv-endpoint=[", host, "]:", port)
                                        : absl::StrCat("--rdzv-endpoint=", host, ":", port);
  }

  std::string Awaited() const {
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

  void ShowAwaited() {
    effects_.emplace_back(ShowLine{absl::StrCat("ddprun: waiting for ddprun on ", Awaited(),
                                                " to answer (--join-timeout says how long)")});
  }

  void GiveAwaitedUp() {
    if (s_.phase == HeadPhase::kMeeting) {
      const int exit_code = 1;
      return GiveUp(EndHead{
          exit_code, FailureText(absl::StrCat("ddprun on ", Name(*s_.first_node),
                                              " has not opened the rendezvous service in time; see "
                                              "what it says above"),
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

  // ---- Running

  void EndNode(int number, const TransportEnded& ended) {
    HeadNode& node = Node(number);
    const TransportKind kind = TransportAt(ended.transport).kind;
    node.outcome = ended.outcome;
    const std::vector<std::string> words(node.words.begin(), node.words.end());
    switch (node.phase) {
      case NodePhase::kStarting:
        return Drop(number, WhyNotStarted(Name(number), TransportAt(ended.transport),
                                          Index(s_.attempts[Index(ended.transport)]), ended.outcome,
                                          words));
      case NodePhase::kReady: {
        const bool others_began = s_.phase != HeadPhase::kGathering;
        Drop(number, WhyLost(Name(number), kind, ended.outcome, words));
        if (others_began && !s_.first_lost.has_value()) s_.first_lost = number;
        return;
      }
      case NodePhase::kRunning:
        node.phase = NodePhase::kEnded;
        if (EndedWell(node) || node.verdict.has_value() || s_.phase == HeadPhase::kStopping ||
            s_.signals > 0) {
          return;
        }
        node.sentence = IsSuccess(ended.outcome)
                            ? WhyUnproven(Name(number), words)
                            : WhyLost(Name(number), kind, ended.outcome, words);
        if (!s_.first_lost.has_value()) s_.first_lost = number;
        return;
      case NodePhase::kWaiting:
      case NodePhase::kEnded:
        node.phase = NodePhase::kEnded;
        return;
    }
  }

  // A node went that the run cannot do without: the others hear of it from the service, if it was
  // in the run, and end by themselves.
  void StopIfTooFew() {
    int failed = 0;
    bool told = true;
    bool verdict = false;
    for (const HeadNode& node : s_.nodes) {
      if (node.phase != NodePhase::kEnded || !node.outcome.has_value() || EndedWell(node)) continue;
      ++failed;
      told = told && node.joined;
      verdict = verdict || node.verdict.has_value();
    }
    if (failed == 0) return;
    if (!verdict && NodesWanted() - failed >= plan_.nodes_min) return;
    StopBy(Stop::kAskNext, verdict ? config_.term_timeout + kKillTimeout + kHostsVerdictTimeout
                           : told  ? config_.term_timeout + kHostsVerdictTimeout
                                   : std::chrono::milliseconds(0));
  }

  void Forward(int signal) {
    for (int transport = 0; transport < Transports(); ++transport) {
      const bool begun = Node(TransportAt(transport).nodes.front()).phase == NodePhase::kRunning;
      if (s_.live[Index(transport)] && begun) effects_.emplace_back(SendSignal{transport, signal});
    }
  }

  void PassOn(int signal) {
    for (int transport = 0; transport < Transports(); ++transport) {
      if (!s_.live[Index(transport)]) continue;
      TellToStop(transport, signal);
    }
  }

  // A node that has not begun has nobody to be polite to.
  void TellToStop(int transport, int signal) {
    if (Node(TransportAt(transport).nodes.front()).phase == NodePhase::kRunning) {
      effects_.emplace_back(SendSignal{transport, signal});
    } else {
      effects_.emplace_back(CloseControlPipe{transport});
    }
  }

  // The same sentence of several nodes is shown once; of one node each time.
  void Show(int number, const std::string& line) {
    if (s_.notes.size() >= kNotesRememberedMax) s_.notes.clear();
    HeadState::Note& note = s_.notes[line];
    if (++note.heard[number] <= note.shown) return;
    ++note.shown;
    effects_.emplace_back(
        ShowLine{Nodes() == 1 ? line : absl::StrCat("[", Name(number), "] ", line)});
  }

  // ---- The end

  // Earlier steps are never put off.
  void StopBy(Stop stop, std::chrono::milliseconds time) {
    const TimePoint deadline = now_ + time;
    if (s_.stop_deadline.has_value() && (s_.stop > stop || *s_.stop_deadline <= deadline)) return;
    s_.stop = stop;
    s_.stop_deadline = deadline;
    if (deadline <= now_) StopHarder();
  }

  // Before the nodes have begun: they need not be asked.
  void GiveUp(EndHead failure) {
    if (!s_.failure.has_value()) s_.failure = std::move(failure);
    s_.phase = HeadPhase::kStopping;
    s_.gather_deadline.reset();
    for (int transport = 0; transport < Transports(); ++transport) {
      if (!s_.live[Index(transport)]) continue;
      effects_.emplace_back(CloseControlPipe{transport});
      const bool there = Node(TransportAt(transport).nodes.front()).hello.has_value();
      if (!there) effects_.emplace_back(EndTransport{transport, SIGTERM});
    }
    s_.stop = Stop::kKillNext;
    s_.stop_deadline = now_ + kHostEndTimeout;
    FinishIfAllEnded();
  }

  void StopHarder() {
    const Stop stop = s_.stop;
    for (int transport = 0; transport < Transports(); ++transport) {
      if (!s_.live[Index(transport)]) continue;
      if (stop == Stop::kAskNext) TellToStop(transport, SIGTERM);
      s_.told_to_stop = s_.told_to_stop || stop == Stop::kAskNext;
      if (stop == Stop::kCloseNext) effects_.emplace_back(CloseControlPipe{transport});
      if (stop == Stop::kKillNext) effects_.emplace_back(EndTransport{transport, SIGKILL});
    }
    s_.phase = HeadPhase::kStopping;
    switch (stop) {
      case Stop::kNone:
        return;
      case Stop::kAskNext:
        s_.stop = Stop::kCloseNext;
        s_.stop_deadline = now_ + config_.term_timeout + kHostEndTimeout;
        return;
      case Stop::kCloseNext:
        s_.stop = Stop::kKillNext;
        s_.stop_deadline = now_ + kHostEndTimeout;
        return;
      case Stop::kKillNext:
        s_.stop = Stop::kLeaveNext;
        s_.stop_deadline = now_ + kHostEndTimeout;
        return;
      case Stop::kLeaveNext:
        return Finish();
    }
  }

  void FinishIfAllEnded() {
    const bool any_live = std::find(s_.live.begin(), s_.live.end(), true) != s_.live.end();
    if (!any_live && s_.phase != HeadPhase::kGathering && s_.phase != HeadPhase::kEnded) Finish();
  }

  void Finish() {
    s_.phase = HeadPhase::kEnded;
    s_.stop_deadline.reset();
    s_.notice_deadline.reset();
    s_.gather_deadline.reset();
    effects_.emplace_back(VerdictOfNodes(s_, config_));
  }

  HeadState& s_;
  const TimePoint now_;
  const HeadConfig& config_;
  const HostsPlan& plan_;
  HeadEffects effects_;
};

}  // namespace

HeadEffects StepHead(HeadState& state, const HeadEvent& event, TimePoint now,
                     const HeadConfig& config) {
  HeadStepper stepper(state, now, config);
  std::visit(stepper, event);
  return stepper.Take();
}

std::optional<TimePoint> NextHeadDeadline(const HeadState& state) {
  std::optional<TimePoint> next;
  for (const auto* deadline :
       {&state.gather_deadline, &state.notice_deadline, &state.stop_deadline}) {
    if (deadline->has_value() && (!next.has_value() || **deadline < *next)) next = *deadline;
  }
  return next;
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
