// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/sim_world.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/options/run_flags.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// After the last fault everything is over by then: the longest wait that there is, to come back to
// a service with a journal, and several rounds after it.
constexpr std::chrono::hours kSettleTimeout{1};
// Far more than all processes have to do at once.
constexpr int kEventsOfMomentMax = 20'000;
constexpr std::uint64_t kTrainingSeed = 0x7472'6169'6e;

std::string Name(Phase phase) {
  switch (phase) {
    case Phase::kWaiting:
      return "waiting";
    case Phase::kRunning:
      return "running";
    case Phase::kExamining:
      return "examining";
    case Phase::kSucceeded:
      return "succeeded";
    case Phase::kStopping:
      return "stopping";
    case Phase::kLeaving:
      return "leaving";
    case Phase::kEnding:
      return "ending";
    case Phase::kEnded:
      return "ended";
  }
  return "";
}

absl::Status Into(const ScenarioLine& line, const char* name, int& to) {
  if (!line.values.contains(name)) return absl::OkStatus();
  const auto number = line.Number(name);
  if (number.ok()) to = *number;
  return number.status();
}

absl::Status Into(const ScenarioLine& line, const char* name, double& to) {
  const auto it = line.values.find(name);
  if (it == line.values.end() || absl::SimpleAtod(it->second, &to)) return absl::OkStatus();
  return line.Wrong(absl::StrCat(name, "=", it->second, " is not a number"));
}

template <typename Time>
absl::Status TimeInto(const ScenarioLine& line, const char* name, Time& to) {
  if (!line.values.contains(name)) return absl::OkStatus();
  const auto time = line.Time(name);
  if (time.ok()) to = std::chrono::duration_cast<Time>(*time);
  return time.status();
}

// As on a command line: "--restart-window 60 --node-failures-max 2".
absl::Status PolicyInto(const ScenarioLine& line, RestartPolicy& to) {
  const auto flags = line.values.find("flags");
  if (flags == line.values.end()) return absl::OkStatus();
  const std::vector<std::string> words = absl::StrSplit(flags->second, ' ', absl::SkipEmpty());
  if (words.size() % 2 != 0) return line.Wrong("flags wants pairs of a flag and its value");
  Values values;
  for (std::size_t i = 0; i < words.size(); i += 2) values[words[i]] = {words[i + 1], words[i]};
  Reader reader(values);
  Options options;
  reader.Read(kRestartFlags, options);
  FinishRestarts(reader, options);
  to = options.restarts.policy;
  return reader.status();
}

}  // namespace

absl::Status SimWorld::Play(const std::vector<ScenarioLine>& scenario) {
  const TimePoint start = clock_.now();
  const auto with_world = [this](auto what) {
    return [this, what](const ScenarioLine& line) {
      Build();
      const absl::Status status = what(line);
      return invariants_.ok() ? status : absl::InternalError(invariants_.failure());
    };
  };
  using L = const ScenarioLine&;
  const std::map<std::string, ScenarioVerb> verbs = {
      {"run", [this](L line) { return Run(line); }},
      {"network", [this](L line) { return Network(line); }},
      {"start", with_world([this](L line) { return StartOne(line); })},
      {"crash", with_world([this](L line) { return Crash(line, false); })},
      {"crash-machine", with_world([this](L line) { return Crash(line, true); })},
      {"stop", with_world([this](L line) { return Stop(line, true); })},
      {"continue", with_world([this](L line) { return Stop(line, false); })},
      {"cut", with_world([this](L line) { return Cut(line, true); })},
      {"heal", with_world([this](L line) { return Cut(line, false); })},
      {"break", with_world([this](L line) { return Break(line); })},
      {"fail", with_world([this](L line) { return Fail(line); })},
      {"progress", with_world([this](L line) { return TellProgress(line); })},
      {"interrupt", with_world([this](L line) { return Interrupt(line); })},
      {"notice", with_world([this](L line) { return GiveNotice(line); })},
      {"withdraw", with_world([this](L line) { return ToAgent(line, &SimAgent::WithdrawNotice); })},
      {"saved", with_world([this](L line) { return ToAgent(line, &SimAgent::TellSaved); })},
      {"ctl-stop", with_world([this](L line) { return CtlStop(line); })},
      {"drain", with_world([this](L line) { return Drain(line); })},
      {"settle", with_world([this](L) { return Settle(); })},
      {"expect", with_world([this](L line) { return Expect(line); })},
      {"await", with_world([this](L line) { return Await(line); })},
  };
  return RunScenario(
      scenario, [this, start](Duration since) { return PassUntil(start + since); }, verbs);
}

bool SimWorld::RunNextUntil(TimePoint time) {
  const TimePoint before = clock_.now();
  if (!clock_.RunNextUntil(time)) return false;
  events_of_moment_ = clock_.now() == before ? events_of_moment_ + 1 : 0;
  if (events_of_moment_ > kEventsOfMomentMax) invariants_.Spins();
  return true;
}

absl::Status SimWorld::PassUntil(TimePoint time) {
  while (invariants_.ok() && RunNextUntil(time)) {
  }
  if (!invariants_.ok()) return absl::InternalError(invariants_.failure());
  clock_.RunUntil(time);
  return absl::OkStatus();
}

// ---- What the run is like

absl::Status SimWorld::Run(const ScenarioLine& line) {
  SimSettings& s = settings_;
  absl::Status status;
  if (const auto nodes = line.values.find("nodes"); nodes != line.values.end()) {
    const std::vector<std::string> parts = absl::StrSplit(nodes->second, ':');
    if (!absl::SimpleAtoi(parts.front(), &s.nodes_min) ||
        !absl::SimpleAtoi(parts.back(), &s.nodes_max)) {
      return line.Wrong("nodes wants N or MIN:MAX");
    }
  }
  if (const auto seed = line.values.find("seed"); seed != line.values.end()) {
    if (!absl::SimpleAtoi(seed->second, &s.seed)) return line.Wrong("seed wants a number");
  }
  int snapshot_after = static_cast<int>(s.snapshot_after);
  status.Update(Into(line, "restarts", s.restarts));
  status.Update(PolicyInto(line, s.restart_policy));
  status.Update(Into(line, "snapshot-after", snapshot_after));
  status.Update(Into(line, "hang", s.hang));
  s.snapshot_after = static_cast<std::uint64_t>(snapshot_after);
  status.Update(TimeInto(line, "lease", s.lease));
  status.Update(TimeInto(line, "last-call", s.last_call));
  status.Update(TimeInto(line, "join-timeout", s.join_timeout));
  status.Update(TimeInto(line, "term-timeout", s.term_timeout));
  status.Update(TimeInto(line, "work", s.work));
  status.Update(TimeInto(line, "collective", s.collective));
  status.Update(TimeInto(line, "disk", s.disk_max));
  if (const auto order = line.values.find("rank-order"); order != line.values.end()) {
    s.rank_order = order->second == "topology" ? RankOrder::kTopology
                   : order->second == "host"   ? RankOrder::kHost
                                               : RankOrder::kJoin;
    if (RankOrderName(s.rank_order) != order->second)
      return line.Wrong("rank-order wants join, host or topology");
  }
  for (const std::string& word : line.words) {
    if (word == "hosted") {
      s.hosted = true;
    } else if (word == "journal") {
      s.journal = true;
    } else if (word == "keep") {
      s.keep = true;
    } else {
      return line.Wrong(absl::StrCat("'", word, "' is not hosted, journal or keep"));
    }
  }
  return status;
}

absl::Status SimWorld::Network(const ScenarioLine& line) {
  SimNetworkOptions& n = settings_.network;
  absl::Status status = TimeInto(line, "delay", n.delay_max);
  status.Update(TimeInto(line, "silence", n.silence_max));
  status.Update(TimeInto(line, "silence-min", n.silence_min));
  status.Update(Into(line, "resend", n.resend));
  status.Update(Into(line, "break", n.break_stream));
  n.silence_min = std::min(n.silence_min, n.silence_max);
  n.delay_min = std::min(n.delay_min, n.delay_max);
  return status;
}

void SimWorld::Build() {
  if (network_ != nullptr) return;
  random_.emplace(settings_.seed);
  network_ = std::make_unique<SimRunNetwork>(clock_, random_->Fork(), settings_.network);
  service_process_ = network_->Add("service");
  service_ = std::make_unique<SimService>(clock_, *network_, service_process_, settings_,
                                          random_->Fork(), invariants_, trace_);
  // A source of its own, so that the seeds mean what they meant.
  training_.emplace(clock_, SimRandom(settings_.seed ^ kTrainingSeed), invariants_);
}

// ---- Who is there

SimWorld::Node& SimWorld::Find(const std::string& name) {
  const auto [it, is_new] = nodes_.try_emplace(name);
  if (is_new) it->second.process = network_->Add(name);
  return it->second;
}

absl::StatusOr<std::vector<SimProcess>> SimWorld::ProcessesOf(const ScenarioLine& line,
                                                              std::size_t word) {
  const auto name = line.Word(word);
  if (!name.ok()) return name.status();
  if (*name == "service") return std::vector<SimProcess>{service_process_};
  std::vector<SimProcess> processes = {Find(*name).process};
  if (settings_.hosted && *name == "n0") processes.push_back(service_process_);
  return processes;
}

absl::Status SimWorld::StartOne(const ScenarioLine& line) {
  const auto name = line.Word(0);
  if (!name.ok()) return name.status();
  if (*name == "service") {
    if (!network_->IsRunning(service_process_)) StartService();
    return absl::OkStatus();
  }
  Node& node = Find(*name);
  SimNodeSettings& settings = node_settings_[*name];
  absl::Status status = Into(line, "workers", settings.workers);
  if (const auto place = line.values.find("topology"); place != line.values.end())
    settings.topology = place->second;
  if (line.values.contains("rank")) status.Update(Into(line, "rank", settings.rank.emplace()));
  status.Update(Into(line, "forges", settings.forges));
  int version = static_cast<int>(settings.version);
  status.Update(Into(line, "version", version));
  settings.version = static_cast<unsigned>(version);
  status.Update(TimeInto(line, "skew", settings.skew));
  if (!status.ok() || network_->IsRunning(node.process)) return status;
  if (settings_.hosted && *name == "n0" && !network_->IsRunning(service_process_)) StartService();
  node.agent = std::make_unique<SimAgent>(
      clock_, *network_,
      SimAgent::Place{node.process, service_process_, *name,
                      NodeId{absl::StrCat(*name, ".", ++node.lives)}},
      settings_, settings, random_->Fork(), invariants_, *training_, trace_,
      SimAgent::Handlers{[this, &node] { AgentEnded(node); },
                         [this, &node](const Start& start) { WorkersDied(node, start); }});
  trace_.Report(clock_.now(), [&] { return absl::StrCat(node.agent->id().value, " starts"); });
  node.agent->Begin();
  return absl::OkStatus();
}

void SimWorld::StartService() { service_->Start(); }

void SimWorld::AgentEnded(Node& node) {
  network_->CrashProcess(node.process);
  // The one that hosts the service stays until the others have their verdict.
  const auto host = nodes_.find("n0");
  if (settings_.hosted && host != nodes_.end() && &host->second == &node)
    LetServiceEnd(clock_.now() + kFinishTimeout);
}

void SimWorld::LetServiceEnd(TimePoint deadline) {
  if (!network_->IsRunning(service_process_)) return;
  const RunState* run = service_->Find("run");
  if (run == nullptr || !IsEnding(*run) || clock_.now() >= deadline) {
    CrashService(false);
    return;
  }
  clock_.After(
      std::chrono::milliseconds(10), [this, deadline] { LetServiceEnd(deadline); },
      network_->Timers(service_process_));
}

void SimWorld::WorkersDied(const Node& node, const Start& start) {
  if (settings_.collective <= Duration(0)) return;
  for (auto& entry : nodes_) {
    SimAgent* agent = entry.second.agent.get();
    if (&entry.second == &node || agent == nullptr || !network_->IsRunning(entry.second.process))
      continue;
    const int life = entry.second.lives;
    Node* other = &entry.second;
    clock_.After(
        random_->Between(std::chrono::milliseconds(1), settings_.collective),
        [other, life, round = start.round] {
          if (other->lives == life) other->agent->BreakCollective(round);
        },
        network_->Timers(other->process));
  }
}

// ---- What goes wrong

absl::Status SimWorld::Crash(const ScenarioLine& line, bool with_machine) {
  const auto name = line.Word(0);
  if (!name.ok()) return name.status();
  if (*name == "service") {
    CrashService(with_machine);
    return absl::OkStatus();
  }
  CrashNode(Find(*name), with_machine);
  if (settings_.hosted && *name == "n0") CrashService(with_machine);
  return absl::OkStatus();
}

void SimWorld::CrashService(bool with_machine) {
  if (!network_->IsRunning(service_process_)) return;
  if (with_machine) {
    network_->CrashMachine(service_process_);
  } else {
    network_->CrashProcess(service_process_);
  }
  service_->Crashed();
}

void SimWorld::CrashNode(Node& node, bool with_machine) {
  if (!network_->IsRunning(node.process)) return;
  trace_.Report(clock_.now(), [&] { return absl::StrCat(node.agent->id().value, " crashes"); });
  if (with_machine) {
    network_->CrashMachine(node.process);
  } else {
    network_->CrashProcess(node.process);
  }
  node.agent->Crashed();
}

absl::Status SimWorld::Stop(const ScenarioLine& line, bool stop) {
  const auto processes = ProcessesOf(line, 0);
  if (!processes.ok()) return processes.status();
  for (const SimProcess process : *processes) {
    if (!network_->IsRunning(process) || network_->IsStopped(process) == stop) continue;
    if (stop) {
      network_->Stop(process);
    } else {
      network_->Continue(process);
    }
  }
  return absl::OkStatus();
}

absl::Status SimWorld::Cut(const ScenarioLine& line, bool cut) {
  const auto from = ProcessesOf(line, 0);
  const auto to = ProcessesOf(line, 1);
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  const SimProcess a = from->front();
  const SimProcess b = to->front();
  const bool both = line.words.size() < 3 || line.words[2] != "one-way";
  if (cut) {
    network_->Cut(a, b);
    if (both) network_->Cut(b, a);
  } else {
    network_->Heal(a, b);
    if (both) network_->Heal(b, a);
  }
  return absl::OkStatus();
}

absl::Status SimWorld::Break(const ScenarioLine& line) {
  const auto processes = ProcessesOf(line, 0);
  if (!processes.ok()) return processes.status();
  for (const SimStream stream : network_->StreamsOf(processes->front())) network_->Break(stream);
  return absl::OkStatus();
}

absl::Status SimWorld::Fail(const ScenarioLine& line) {
  const auto name = line.Word(0);
  if (!name.ok()) return name.status();
  int code = 1;
  int signal = 0;
  absl::Status status = Into(line, "code", code);
  status.Update(Into(line, "signal", signal));
  Node& node = Find(*name);
  if (status.ok() && network_->IsRunning(node.process) && !network_->IsStopped(node.process)) {
    node.agent->FailWorker(code, signal);
  }
  return status;
}

absl::Status SimWorld::TellProgress(const ScenarioLine& line) {
  const auto name = line.Word(0);
  if (!name.ok()) return name.status();
  int step = 0;
  const absl::Status status = Into(line, "step", step);
  Node& node = Find(*name);
  if (status.ok() && network_->IsRunning(node.process) && !network_->IsStopped(node.process)) {
    node.agent->TellProgress(step);
  }
  return status;
}

absl::Status SimWorld::GiveNotice(const ScenarioLine& line) {
  const auto name = line.Word(0);
  if (!name.ok()) return name.status();
  std::chrono::milliseconds grace{0};
  const absl::Status status = TimeInto(line, "grace", grace);
  Node& node = Find(*name);
  if (status.ok() && network_->IsRunning(node.process) && !network_->IsStopped(node.process))
    node.agent->GiveNotice(grace);
  return status;
}

absl::Status SimWorld::ToAgent(const ScenarioLine& line, void (SimAgent::*what)()) {
  const auto name = line.Word(0);
  if (!name.ok()) return name.status();
  Node& node = Find(*name);
  if (network_->IsRunning(node.process) && !network_->IsStopped(node.process))
    ((*node.agent).*what)();
  return absl::OkStatus();
}

absl::Status SimWorld::Interrupt(const ScenarioLine& line) {
  const auto name = line.Word(0);
  if (!name.ok()) return name.status();
  Node& node = Find(*name);
  if (network_->IsRunning(node.process) && !network_->IsStopped(node.process))
    node.agent->Signal(SIGTERM);
  return absl::OkStatus();
}

// Somebody asks for it, and the service hears it at once, if it is there.
absl::Status SimWorld::CtlStop(const ScenarioLine& line) {
  if (!network_->IsRunning(service_process_) || network_->IsStopped(service_process_)) {
    return absl::OkStatus();
  }
  service_->StopRun(!line.words.empty() && line.words[0] == "now");
  return absl::OkStatus();
}

absl::Status SimWorld::Drain(const ScenarioLine& line) {
  const auto name = line.Word(0);
  if (!name.ok()) return name.status();
  if (!network_->IsRunning(service_process_) || network_->IsStopped(service_process_)) {
    return absl::OkStatus();
  }
  const auto has = [&](const char* word) {
    return std::find(line.words.begin(), line.words.end(), word) != line.words.end();
  };
  service_->DrainNode({.by = "somebody",
                       .node = *name,
                       .force = has("force"),
                       .at_next_round = has("at-next-round")});
  return absl::OkStatus();
}

// ---- What is to come of it

bool SimWorld::AllEnded() const {
  for (const auto& [name, node] : nodes_) {
    if (network_->IsRunning(node.process)) return false;
  }
  return service_->Find("run") == nullptr;
}

absl::Status SimWorld::Settle() {
  const TimePoint deadline = clock_.now() + kSettleTimeout;
  while (invariants_.ok() && !AllEnded() && RunNextUntil(deadline)) {
  }
  for (const auto& [name, node] : nodes_) {
    if (network_->IsRunning(node.process))
      invariants_.NotEnded(absl::StrCat("node ", name), Name(node.agent->state().phase));
  }
  if (const RunState* run = service_->Find("run"); run != nullptr) {
    invariants_.NotEnded("the run", Name(run->phase));
  }
  return absl::OkStatus();
}

// What can be expected of the service or a node, by name.
std::map<std::string, std::string> SimWorld::Look(const std::string& name) {
  std::map<std::string, std::string> seen;
  if (name == "service") {
    const RunState* run = service_->Find("run");
    seen["phase"] = !network_->IsRunning(service_process_) ? "absent"
                    : run == nullptr                       ? "idle"
                                                           : Name(run->phase);
    if (run == nullptr) return seen;
    seen["round"] = absl::StrCat(ToNumber(run->round));
    seen["restarts"] = absl::StrCat(run->restart_count);
    seen["used"] = absl::StrCat(run->restarts.used);
    seen["members"] = absl::StrCat(run->members.size());
    seen["away"] = absl::StrCat(run->members.size() - run->links.size());
    seen["spares"] = absl::StrCat(run->phase == RunPhase::kSealed ? run->waiting : 0);
    seen["cause"] = run->cause ? ToSentence(*run->cause) : "";
    seen["words"] = run->words;
    return seen;
  }
  const Node& node = Find(name);
  const bool running = network_->IsRunning(node.process);
  const bool ended = node.agent != nullptr && node.agent->end();
  seen["phase"] = ended ? "ended" : running ? Name(node.agent->state().phase) : "absent";
  if (node.agent == nullptr) return seen;
  const SupervisorState& state = node.agent->state();
  seen["workers"] = running && state.workers_live ? "live" : "none";
  seen["rounds"] = absl::StrCat(node.agent->spawned());
  seen["said"] = absl::StrJoin(node.agent->notes(), "\n");
  if (ended) {
    seen["exit"] = absl::StrCat(node.agent->end()->exit_code);
    absl::StrAppend(&seen["said"], "\n", node.agent->end()->text);
  }
  if (state.round) {
    seen["round"] = absl::StrCat(ToNumber(state.round->round));
    seen["rank"] = absl::StrCat(state.round->node_rank);
    seen["first"] = absl::StrCat(state.round->rank_first);
    seen["world"] = absl::StrCat(state.round->world_size);
    seen["restarts"] = absl::StrCat(state.round->restart_count);
    seen["master"] = state.round->master_addr;
  }
  return seen;
}

absl::Status SimWorld::Expect(const ScenarioLine& line) {
  const auto name = line.Word(0);
  if (!name.ok()) return name.status();
  std::map<std::string, std::string> seen = Look(*name);
  for (const auto& [what, wanted] : line.values) {
    if (what == "within") continue;
    const bool in_words = what == "said" || what == "cause" || what == "words";
    const std::string& is = seen[what];
    if (in_words ? !absl::StrContains(is, wanted) : is != wanted) {
      return absl::FailedPreconditionError(
          absl::StrCat(line.place, ": ", *name, ": ", what, " is '", is, "', not '", wanted, "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status SimWorld::Await(const ScenarioLine& line) {
  const auto within = line.Time("within");
  if (!within.ok()) return within.status();
  const TimePoint deadline = clock_.now() + *within;
  while (true) {
    const absl::Status status = Expect(line);
    if (status.ok() || absl::IsInvalidArgument(status)) return status;
    if (!invariants_.ok() || !RunNextUntil(deadline)) return status;
  }
}

}  // namespace ddprun
