// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_head.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/hosts/hosts_advice.h"
#include "launcher/hosts/hosts_stepper.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {

void HeadStepper::operator()(const HeadBegins&) {
  s_.nodes.resize(plan_.names.size());
  s_.attempts.assign(plan_.transports.size(), 0);
  s_.live.assign(plan_.transports.size(), false);
  s_.gather_deadline = now_ + config_.join_timeout;
  s_.notice_deadline = now_ + kHostsNoticeDelay;
  StartMore();
}

void HeadStepper::operator()(const MessageReceived& received) {
  HeadNode& node = Node(received.node);
  if (const auto* hello = std::get_if<Hello>(&received.message)) {
    OnHello(received.node, *hello);
  } else if (const auto* serving = std::get_if<Serving>(&received.message)) {
    if (s_.phase == HeadPhase::kMeeting && received.node == s_.first_node)
      LetOthersGo(serving->port);
  } else if (std::holds_alternative<Joined>(received.message)) {
    node.joined = true;
  } else if (const auto* verdict = std::get_if<NodeVerdict>(&received.message)) {
    node.verdict = verdict->text;
    node.stopped_by_head = s_.phase == HeadPhase::kStopping;
  } else if (const auto* finished = std::get_if<Finished>(&received.message)) {
    // Only a node that was ordered to start knows the run and can have finished it.
    if (node.phase == NodePhase::kRunning && finished->run_id == plan_.run_id)
      node.finished = *finished;
  }
}

void HeadStepper::operator()(const LineReceived& received) {
  HeadNode& node = Node(received.node);
  // Bytes of another machine must not move this terminal's cursor or forge a line.
  const std::string line = Printable(received.line);
  node.words.push_back(line);
  if (node.words.size() > kHostWordsMax) node.words.pop_front();
  // The output of a login shell or ssh matters only if the connection fails, and is shown then.
  if (node.hello.has_value()) Show(received.node, line);
}

void HeadStepper::operator()(const TransportEnded& ended) {
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

void HeadStepper::operator()(const HeadSignaled& event) {
  if (!event.ends) return Forward(event.signal);
  if (s_.signals > 0 && now_ - s_.signal_time < kSignalEchoTime) return;
  if (s_.signals++ == 0) {
    s_.signal = event.signal;
    s_.signal_time = now_;
  }
  switch (s_.phase) {
    case HeadPhase::kGathering:
      return GiveUp(EndHead{ExitCodeOfSignal(event.signal), InterruptedText(*s_.signal)});
    case HeadPhase::kMeeting:
    case HeadPhase::kRunning:
    case HeadPhase::kStopping:
      // Nodes that were told to stop would take another signal for the second one, which kills
      // their workers.
      if (s_.signals == 1 && s_.ordered_to_stop) return;
      PassOn(event.signal);
      // Nodes normally stop within their own time limits; these deadlines are for those that hang.
      if (s_.signals == 1) {
        StopBy(StopStep::kCloseNext, config_.term_timeout + kKillTimeout + kHostEndTimeout);
      } else {
        StopBy(StopStep::kCloseNext, s_.signals == 2 ? kHostEndTimeout : std::chrono::seconds(0));
      }
      return;
    case HeadPhase::kEnded:
      return;
  }
}

void HeadStepper::operator()(const HeadDeadlinePassed&) {
  if (s_.phase == HeadPhase::kEnded) return;
  if (IsOver(s_.notice_deadline)) {
    s_.notice_deadline.reset();
    if (s_.phase == HeadPhase::kGathering) ShowAwaited();
  }
  if (IsOver(s_.gather_deadline)) {
    s_.gather_deadline.reset();
    GiveUpAwaited();
  }
  if (IsOver(s_.stop_deadline)) StopHarder();
}

bool HeadStepper::IsOver(const std::optional<TimePoint>& deadline) const {
  return deadline.has_value() && *deadline <= now_;
}

int HeadStepper::CountInPhase(NodePhase phase) const {
  return static_cast<int>(
      std::count_if(s_.nodes.begin(), s_.nodes.end(),
                    [phase](const HeadNode& node) { return node.phase == phase; }));
}

// ---- Running

void HeadStepper::EndNode(int number, const TransportEnded& ended) {
  HeadNode& node = Node(number);
  const TransportKind kind = TransportAt(ended.transport).kind;
  node.outcome = ended.outcome;
  const std::vector<std::string> words(node.words.begin(), node.words.end());
  switch (node.phase) {
    case NodePhase::kStarting:
      return Drop(number,
                  WhyNotStarted(Name(number), TransportAt(ended.transport),
                                Index(s_.attempts[Index(ended.transport)]), ended.outcome, words));
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
      node.sentence = IsSuccess(ended.outcome) ? WhyUnproven(Name(number), words)
                                               : WhyLost(Name(number), kind, ended.outcome, words);
      if (!s_.first_lost.has_value()) s_.first_lost = number;
      return;
    case NodePhase::kWaiting:
    case NodePhase::kEnded:
      node.phase = NodePhase::kEnded;
      return;
  }
}

// The run cannot continue without a node that ended: the service informs the others, if the node
// was in the run, and they end by themselves.
void HeadStepper::StopIfTooFew() {
  int left = 0;
  bool failed = false;
  bool told = true;
  bool verdict = false;
  for (const HeadNode& node : s_.nodes) {
    if (node.dismissed) continue;
    if (node.phase != NodePhase::kEnded || !node.outcome.has_value() || EndedWell(node)) {
      ++left;
      continue;
    }
    failed = true;
    told = told && node.joined;
    verdict = verdict || node.verdict.has_value();
  }
  if (!failed || (!verdict && left >= plan_.nodes_min)) return;
  StopBy(StopStep::kAskNext, verdict ? config_.term_timeout + kKillTimeout + kHostsVerdictTimeout
                             : told  ? config_.term_timeout + kHostsVerdictTimeout
                                     : std::chrono::milliseconds(0));
}

void HeadStepper::Forward(int signal) {
  for (int transport = 0; transport < Transports(); ++transport) {
    const bool begun = Node(TransportAt(transport).nodes.front()).phase == NodePhase::kRunning;
    if (s_.live[Index(transport)] && begun) effects_.emplace_back(SendSignal{transport, signal});
  }
}

void HeadStepper::PassOn(int signal) {
  for (int transport = 0; transport < Transports(); ++transport) {
    if (!s_.live[Index(transport)]) continue;
    OrderToStop(transport, signal);
  }
}

// A node that has not begun has no workers to stop gracefully.
void HeadStepper::OrderToStop(int transport, int signal) {
  if (Node(TransportAt(transport).nodes.front()).phase == NodePhase::kRunning) {
    effects_.emplace_back(SendSignal{transport, signal});
  } else {
    effects_.emplace_back(CloseControlPipe{transport});
  }
}

// Shows a line that several nodes print once; a repetition by the same node is shown again.
void HeadStepper::Show(int number, const std::string& line) {
  if (s_.notes.size() >= kNotesRememberedMax) s_.notes.clear();
  HeadState::Note& note = s_.notes[line];
  if (++note.heard[number] <= note.shown) return;
  ++note.shown;
  effects_.emplace_back(
      ShowLine{Nodes() == 1 ? line : absl::StrCat("[", Name(number), "] ", line)});
}

// ---- The end

// Never postpones an earlier deadline.
void HeadStepper::StopBy(StopStep stop, std::chrono::milliseconds time) {
  const TimePoint deadline = now_ + time;
  if (s_.stop_deadline.has_value() && (s_.stop > stop || *s_.stop_deadline <= deadline)) return;
  s_.stop = stop;
  s_.stop_deadline = deadline;
  if (deadline <= now_) StopHarder();
}

// Before the run has begun: the nodes have no workers to stop.
void HeadStepper::GiveUp(EndHead failure) {
  if (!s_.failure.has_value()) s_.failure = std::move(failure);
  s_.phase = HeadPhase::kStopping;
  s_.gather_deadline.reset();
  for (int transport = 0; transport < Transports(); ++transport) {
    if (!s_.live[Index(transport)]) continue;
    effects_.emplace_back(CloseControlPipe{transport});
    const bool there = Node(TransportAt(transport).nodes.front()).hello.has_value();
    if (!there) effects_.emplace_back(EndTransport{transport, SIGTERM});
  }
  s_.stop = StopStep::kKillNext;
  s_.stop_deadline = now_ + kHostEndTimeout;
  FinishIfAllEnded();
}

void HeadStepper::StopHarder() {
  const StopStep stop = s_.stop;
  for (int transport = 0; transport < Transports(); ++transport) {
    if (!s_.live[Index(transport)]) continue;
    if (stop == StopStep::kAskNext) OrderToStop(transport, config_.stop_signal);
    s_.ordered_to_stop = s_.ordered_to_stop || stop == StopStep::kAskNext;
    if (stop == StopStep::kCloseNext) effects_.emplace_back(CloseControlPipe{transport});
    if (stop == StopStep::kKillNext) effects_.emplace_back(EndTransport{transport, SIGKILL});
  }
  s_.phase = HeadPhase::kStopping;
  switch (stop) {
    case StopStep::kNone:
      return;
    case StopStep::kAskNext:
      s_.stop = StopStep::kCloseNext;
      s_.stop_deadline = now_ + config_.term_timeout + kHostEndTimeout;
      return;
    case StopStep::kCloseNext:
      s_.stop = StopStep::kKillNext;
      s_.stop_deadline = now_ + kHostEndTimeout;
      return;
    case StopStep::kKillNext:
      s_.stop = StopStep::kLeaveNext;
      s_.stop_deadline = now_ + kHostEndTimeout;
      return;
    case StopStep::kLeaveNext:
      return Finish();
  }
}

void HeadStepper::FinishIfAllEnded() {
  const bool any_live = std::find(s_.live.begin(), s_.live.end(), true) != s_.live.end();
  if (!any_live && s_.phase != HeadPhase::kGathering && s_.phase != HeadPhase::kEnded) Finish();
}

void HeadStepper::Finish() {
  s_.phase = HeadPhase::kEnded;
  s_.stop_deadline.reset();
  s_.notice_deadline.reset();
  s_.gather_deadline.reset();
  effects_.emplace_back(VerdictOfNodes(s_, config_));
}

// ----

HeadEffects StepHead(HeadState& state, const HeadEvent& event, TimePoint now,
                     const HeadConfig& config) {
  HeadStepper stepper(state, now, config);
  std::visit(stepper, event);
  return stepper.Take();
}

std::optional<TimePoint> NextHeadDeadline(const HeadState& state) {
  return Earliest({state.gather_deadline, state.notice_deadline, state.stop_deadline});
}

}  // namespace ddprun
