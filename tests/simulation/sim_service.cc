// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/sim_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

template <typename... Parts>
std::uint64_t Mix(std::uint64_t sum, const Parts&... parts) {
  const auto one = [&sum](std::uint64_t part) {
    sum = (sum ^ part) * 0x9e3779b97f4a7c15;
    sum ^= sum >> 29;
  };
  (one(static_cast<std::uint64_t>(parts)), ...);
  return sum;
}

std::uint64_t Number(TimePoint time) {
  return static_cast<std::uint64_t>(time.time_since_epoch().count());
}
std::uint64_t Number(const std::optional<TimePoint>& time) { return time ? Number(*time) + 1 : 0; }

// Covers what a replay must bring back. (Words are told anew.)
std::uint64_t Fingerprint(const RunState& state) {
  std::uint64_t sum =
      Mix(1, state.phase, state.round, state.restart_count, state.joins, state.may_restart,
          Number(state.deadline), Number(state.broke), Number(state.last_call_due),
          Number(state.lease_due), state.rules.has_value(), state.cause.has_value(),
          state.verdict.has_value(), state.start.has_value());
  const RestartHistory& restarts = state.restarts;
  sum = Mix(sum, restarts.used, restarts.no_progress, restarts.step_before, restarts.times.size(),
            Number(state.sealed), Number(state.restart_due), state.left_out.size());
  for (const TimePoint time : restarts.times) sum = Mix(sum, Number(time));
  for (const auto& [name, host] : restarts.hosts) {
    sum = Mix(sum, name.size(), host.times.size(), Number(host.left_out), host.exit_code);
  }
  for (const auto& [id, member] : state.members) {
    for (const char letter : id.value) sum = Mix(sum, letter);
    sum = Mix(sum, member.order, member.node_rank.value_or(-1), member.seated, member.rank_first,
              member.role_rank_first, member.role_world_size, member.phase,
              member.link.value_or(LinkId{0}), Number(member.last_seen), member.join.worker_port,
              member.drained_by.size(), member.leaving.has_value());
  }
  if (state.start) sum = Mix(sum, state.start->world_size, state.start->master_port);
  if (state.cause) sum = Mix(sum, state.cause->kind, state.cause->rank, state.cause->exit_code);
  return sum;
}

}  // namespace

SimService::SimService(SimClock& clock, SimRunNetwork& network, SimProcess process,
                       const SimSettings& settings, SimRandom random, Invariants& invariants,
                       SimTrace& trace)
    : clock_(clock),
      network_(network),
      process_(process),
      settings_(settings),
      random_(random),
      invariants_(invariants),
      trace_(trace) {}

// ---- The process

void SimService::Start() {
  // Nothing that one process's clock says means anything in the next.
  epoch_ = random_.Between(Duration(0), std::chrono::hours(1000));
  journal_clock_.emplace(Steady(), Steady());
  network_.Start(process_, this);
  trace_.Report(clock_.now(), [] { return "the service starts"; });
  if (settings_.journal) Recover();
  Arm();
}

void SimService::Crashed() {
  trace_.Report(clock_.now(), [] { return "the service crashes"; });
  runs_.clear();
  places_.clear();
  store_places_.clear();
  held_.clear();
  syncing_ = false;
  armed_.reset();
  if (settings_.journal) disk_.Crash(random_);
}

const RunState* SimService::Find(const std::string& run_id) const {
  const auto it = runs_.find(run_id);
  return it == runs_.end() ? nullptr : &it->second->state;
}

// ---- What somebody asks for

void SimService::StopRun(bool now) {
  const auto runs = runs_;
  for (const auto& entry : runs) {
    if (PlanStop(entry.second->state, {.by = "somebody", .now = now}).ok()) {
      StepRun(entry.second, RunStopped{"somebody", now});
      ForgetIfDrained(entry.second);
    }
  }
}

void SimService::DrainNode(const DrainRequest& request) {
  const auto runs = runs_;
  for (const auto& entry : runs) {
    const auto plan = PlanDrain(entry.second->state, request);
    if (plan.ok()) {
      StepRun(entry.second, NodeDrained{plan->node_id, request.by, request.at_next_round});
      ForgetIfDrained(entry.second);
    }
  }
}

// ---- Streams, as session_service.cc and run_registry.cc treat them

void SimService::OnMessage(SimStream stream, SimMessage message) {
  if (const auto* report = std::get_if<Report>(&message)) {
    const auto place = places_.find(stream);
    if (place != places_.end()) {
      StepRun(place->second.run, NodeReported{place->second.link, *report});
    } else if (const auto* join = std::get_if<Join>(report)) {
      Enter(stream, *join);
    }
  } else if (const auto* hello = std::get_if<StoreHello>(&message)) {
    OpenStore(stream, *hello);
  } else if (auto* batch = std::get_if<StoreBatch>(&message)) {
    const auto place = store_places_.find(stream);
    if (place == store_places_.end()) return;
    const StorePlace of = place->second;
    do {
      QueueStore(of.run, of.run->hub.Receive(of.peer, *batch, Now()));
    } while (!batch->requests.empty());
  }
}

std::optional<LinkId> SimService::Admit(Run& run, bool resume, SimStream stream) {
  const bool nobody = !resume || run.state.members.empty();
  if (run.state.phase == RunPhase::kClosed && nobody) return std::nullopt;
  const LinkId link{++run.last_link};
  run.sessions.emplace(link, stream);
  return link;
}

std::shared_ptr<SimService::Run> SimService::AddRun(SimRunNumber number, ReplayedRun from) {
  auto run = std::make_shared<Run>(std::move(from));
  run->number = number;
  runs_[run->state.run_id] = run;
  run->hub.set_on_mutation(
      [this, of = run.get()](const std::string& node_id, std::uint64_t id, const StoreOp& op) {
        invariants_.Mutated(op, of->state.round, of->hub.round());
        Append(*of, {of->number, Now(), StoreMutation{node_id, id, op}});
      });
  return run;
}

void SimService::Enter(SimStream stream, const Join& join) {
  std::shared_ptr<Run> run;
  std::optional<LinkId> link;
  if (const auto it = runs_.find(join.run_id); it != runs_.end()) {
    run = it->second;
    link = Admit(*run, join.resume, stream);
    if (!link) Forget(*run);
  }
  if (!link) {
    run = AddRun(++last_run_, ReplayedRun(MakeRun(join.run_id, settings_.journal)));
    Append(*run, {run->number, Now(), RunOpened{join.run_id}});
    link = Admit(*run, join.resume, stream);
  }
  places_[stream] = Place{run, *link};
  StepRun(run, NodeJoined{*link, join});
}

// ---- Streams of the store, as store_service.cc and run.cc treat them

void SimService::OpenStore(SimStream stream, const StoreHello& hello) {
  const auto it = runs_.find(hello.run_id);
  if (it == runs_.end()) {
    RefuseStore(stream, absl::NotFoundError("no such run"));
    return;
  }
  const std::shared_ptr<Run> run = it->second;
  if (!run->state.members.contains(NodeId{hello.node_id})) {
    RefuseStore(stream, absl::PermissionDeniedError("the node is not in the run"));
    return;
  }
  const StorePeer peer{++run->last_peer};
  store_places_[stream] = StorePlace{run, peer};
  run->stores.emplace(peer, stream);
  QueueStore(run, run->hub.Open(peer, hello));
}

void SimService::RefuseStore(SimStream stream, absl::Status status) {
  network_.Send(process_, stream, std::move(status));
  network_.Close(process_, stream);
}

void SimService::QueueStore(const std::shared_ptr<Run>& run, StoreEffects effects) {
  std::map<StorePeer, std::vector<StoreReply>> replies;
  for (StoreEffect& effect : effects) {
    if (auto* say = std::get_if<StoreSay>(&effect))
      replies[say->peer].push_back(std::move(say->reply));
  }
  for (auto& [peer, words] : replies) {
    const auto stream = run->stores.find(peer);
    if (stream == run->stores.end()) continue;
    Hold([this, to = stream->second, words = std::move(words)] {
      network_.Send(process_, to, words);
    });
  }
  for (StoreEffect& effect : effects) {
    const auto* end = std::get_if<StoreEnd>(&effect);
    const auto stream = end == nullptr ? run->stores.end() : run->stores.find(end->peer);
    if (stream == run->stores.end()) continue;
    Hold([this, to = stream->second, status = end->status] { RefuseStore(to, status); });
    store_places_.erase(stream->second);
    run->stores.erase(stream);
  }
  Release();
  Arm();
}

void SimService::OnClosed(SimStream stream) { Gone(stream); }

void SimService::Gone(SimStream stream) {
  if (const auto of_store = store_places_.find(stream); of_store != store_places_.end()) {
    const StorePlace place = of_store->second;
    store_places_.erase(of_store);
    place.run->stores.erase(place.peer);
    place.run->hub.Gone(place.peer);
    return;
  }
  const auto it = places_.find(stream);
  if (it == places_.end()) return;
  const Place place = it->second;
  places_.erase(it);
  StepRun(place.run, NodeGone{place.link});
  place.run->sessions.erase(place.link);
  ForgetIfDrained(place.run);
}

void SimService::ForgetIfDrained(const std::shared_ptr<Run>& run) {
  const auto it = runs_.find(run->state.run_id);
  if (it == runs_.end() || it->second != run) return;
  if (!IsDrained(run->state) || !run->sessions.empty()) return;
  Forget(*run);
  runs_.erase(it);
}

void SimService::Forget(const Run& run) { Append(run, {run.number, Now(), RunForgotten{}}); }

// ---- Steps

void SimService::StepRun(const std::shared_ptr<Run>& run, MembershipEvent event) {
  ++steps_;
  const TimePoint now = Now();
  const RunState before = run->state;
  std::vector<MembershipEffect> effects = Step(run->state, event, now);
  invariants_.Stepped({run->number, before, event, effects, run->state, now});
  Append(*run, {run->number, now, std::move(event)});
  for (MembershipEffect& effect : effects) {
    if (const auto* changed = std::get_if<RoundChanged>(&effect)) {
      QueueStore(run, run->hub.Clear(changed->round));
      continue;
    }
    // Who has the link may be nobody's any more by the time that it is told.
    NodeId node;
    if (const auto* send = std::get_if<SendDirective>(&effect)) {
      const auto link = run->state.links.find(send->link);
      if (link != run->state.links.end()) node = link->second;
    }
    Hold([this, run, node = std::move(node), effect = std::move(effect)] {
      Perform(*run, node, effect);
    });
  }
  invariants_.StoreIsOf(run->state.round, run->hub.round());
  Release();
  Arm();
}

void SimService::Perform(Run& run, const NodeId& node, const MembershipEffect& effect) {
  const auto* send = std::get_if<SendDirective>(&effect);
  const auto* end = std::get_if<EndStream>(&effect);
  if (send == nullptr && end == nullptr) return;
  const auto session = run.sessions.find(send != nullptr ? send->link : end->link);
  if (session == run.sessions.end()) return;
  const SimStream stream = session->second;
  if (send != nullptr) {
    trace_.Report(clock_.now(), [&] {
      return absl::StrCat("service -> ", node.value.empty() ? "link" : node.value, ": ",
                          WordsOf(send->directive));
    });
    if (!node.value.empty()) invariants_.OnDirective(run.number, node, send->directive);
    network_.Send(process_, stream, send->directive);
    return;
  }
  network_.Close(process_, stream);
  // The stream's end is reported like any other, some time later.
  clock_.After(
      random_.Between(Duration(0), std::chrono::milliseconds(1)), [this, stream] { Gone(stream); },
      network_.Timers(process_));
}

void SimService::Tick() {
  std::vector<std::shared_ptr<Run>> runs;
  for (const auto& entry : runs_) runs.push_back(entry.second);
  for (const auto& run : runs) {
    const auto due = NextDeadline(run->state);
    if (due && *due <= Now()) StepRun(run, ddprun::Tick{});
    QueueStore(run, run->hub.Tick(Now()));
    ForgetIfDrained(run);
  }
}

void SimService::Arm() {
  std::optional<TimePoint> next;
  for (const auto& entry : runs_) {
    for (const auto& due : {NextDeadline(entry.second->state), entry.second->hub.NextDeadline()}) {
      if (due && (!next || *due < *next)) next = due;
    }
  }
  if (next == armed_) return;
  clock_.Cancel(timer_);
  armed_ = next;
  if (!next) return;
  timer_ = clock_.At(
      journal_clock_->ToSteady(*next) - epoch_,
      [this] {
        armed_.reset();
        Tick();
        Arm();
      },
      network_.Timers(process_));
}

// ---- The journal

std::uint64_t SimService::Append(const Run& run, JournalRecord record) {
  if (!settings_.journal) return 0;
  const std::uint64_t number =
      disk_.Append({EncodeJournalRecord(std::move(record)), run.number, Fingerprint(run.state)});
  last_record_ = number;
  if (!syncing_) Sync();
  return number;
}

void SimService::Sync() {
  syncing_ = true;
  const std::uint64_t record = disk_.last();
  clock_.After(
      random_.Between(std::chrono::microseconds(20), settings_.disk_max),
      [this, record] {
        syncing_ = false;
        if (disk_.synced() < record) disk_.Synced(record);
        if (disk_.records().size() > settings_.snapshot_after) TakeSnapshot();
        Release();
        if (disk_.synced() < disk_.last() && !syncing_) Sync();
      },
      network_.Timers(process_));
}

void SimService::TakeSnapshot() {
  std::vector<SimDisk::Record> snapshot;
  for (const auto& entry : runs_) {
    Run& run = *entry.second;
    std::vector<std::string> parts;
    AddSnapshotParts(run.number, Now(), run.last_link, run.state, run.hub, parts);
    for (std::string& part : parts)
      snapshot.push_back({std::move(part), run.number, Fingerprint(run.state)});
  }
  disk_.Replace(std::move(snapshot));
}

void SimService::Hold(std::function<void()> say) {
  held_.push_back({last_record_, std::move(say)});
}

void SimService::Release() {
  while (!held_.empty() && (!settings_.journal || held_.front().record <= disk_.synced())) {
    const Held held = std::move(held_.front());
    held_.pop_front();
    held.say();
  }
}

void SimService::Recover() {
  JournalReplayer replayer;
  std::map<SimRunNumber, std::uint64_t> fingerprints;
  for (const SimDisk::Record& record : disk_.records()) {
    if (!replayer.Apply(record.bytes).ok()) invariants_.ReplayedOtherwise(record.run);
    fingerprints[record.run] = record.fingerprint;
  }
  // A journal without a time is new.
  if (replayer.last() != TimePoint{}) journal_clock_.emplace(replayer.last(), Steady());
  last_run_ = std::max(last_run_, replayer.last_run());
  last_record_ = disk_.last();
  std::vector<std::shared_ptr<Run>> runs;
  std::map<SimRunNumber, const RunState*> states;
  for (auto& [number, replayed] : replayer.TakeRuns()) {
    if (Fingerprint(replayed.membership) != fingerprints[number])
      invariants_.ReplayedOtherwise(number);
    runs.push_back(AddRun(number, std::move(replayed)));
    invariants_.StoreIsOf(runs.back()->state.round, runs.back()->hub.round());
    states[number] = &runs.back()->state;
  }
  invariants_.Recovered(states);
  for (const auto& run : runs) {
    // The streams of the last process have ended.
    const auto links = run->state.links;
    for (const auto& entry : links) StepRun(run, NodeGone{entry.first});
    ForgetIfDrained(run);
  }
}

}  // namespace ddprun
