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

// Of what a replay must bring back. (Words are told anew.)
std::uint64_t Fingerprint(const RunState& state) {
  std::uint64_t sum =
      Mix(1, state.phase, state.round, state.restart_count, state.joins, state.may_restart,
          Number(state.deadline), Number(state.broke), Number(state.last_call_due),
          Number(state.lease_due), state.rules.has_value(), state.cause.has_value(),
          state.verdict.has_value(), state.start.has_value());
  for (const auto& [id, member] : state.members) {
    for (const char letter : id.value) sum = Mix(sum, letter);
    sum = Mix(sum, member.order, member.node_rank.value_or(-1), member.seated, member.rank_first,
              member.phase, member.link.value_or(LinkId{0}), Number(member.heard),
              member.join.worker_port);
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
  trace_.Say(clock_.now(), [] { return "the service starts"; });
  if (settings_.journal) Recover();
  Arm();
}

void SimService::Crashed() {
  trace_.Say(clock_.now(), [] { return "the service crashes"; });
  runs_.clear();
  places_.clear();
  queue_.clear();
  syncing_ = false;
  armed_.reset();
  if (settings_.journal) disk_.Crash(random_);
}

const RunState* SimService::Find(const std::string& run_id) const {
  const auto it = runs_.find(run_id);
  return it == runs_.end() ? nullptr : &it->second->state;
}

// ---- Streams, as session_service.cc and run_registry.cc treat them

void SimService::OnMessage(SimStream stream, SimMessage message) {
  const auto* report = std::get_if<Report>(&message);
  if (report == nullptr) return;
  const auto place = places_.find(stream);
  if (place != places_.end()) {
    StepRun(place->second.run, NodeReported{place->second.link, *report});
  } else if (const auto* join = std::get_if<Join>(report)) {
    Join_(stream, *join);
  }
}

std::optional<LinkId> SimService::Admit(Run& run, bool resume, SimStream stream) {
  const bool nobody = resume ? run.state.members.empty() : run.state.links.empty();
  if (run.state.phase == RunPhase::kClosed && nobody) return std::nullopt;
  const LinkId link{++run.last_link};
  run.sessions.emplace(link, stream);
  return link;
}

void SimService::Join_(SimStream stream, const Join& join) {
  std::shared_ptr<Run> run;
  std::optional<LinkId> link;
  if (const auto it = runs_.find(join.run_id); it != runs_.end()) {
    run = it->second;
    link = Admit(*run, join.resume, stream);
    if (!link) Forget(*run);
  }
  if (!link) {
    run = std::make_shared<Run>();
    run->number = ++last_run_;
    run->id = join.run_id;
    run->state = MakeRun(join.run_id, settings_.journal);
    runs_[join.run_id] = run;
    Append(*run, {run->number, Now(), RunOpened{join.run_id}});
    link = Admit(*run, join.resume, stream);
  }
  places_[stream] = Place{run, *link};
  StepRun(run, NodeJoined{*link, join});
}

void SimService::OnClosed(SimStream stream) { Gone(stream); }

void SimService::Gone(SimStream stream) {
  const auto it = places_.find(stream);
  if (it == places_.end()) return;
  const Place place = it->second;
  places_.erase(it);
  StepRun(place.run, NodeGone{place.link});
  place.run->sessions.erase(place.link);
  ForgetIfDrained(place.run);
}

void SimService::ForgetIfDrained(const std::shared_ptr<Run>& run) {
  const auto it = runs_.find(run->id);
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
  Queued queued;
  queued.run = run;
  for (MembershipEffect& effect : effects) {
    // Who has the link may be nobody's any more by the time that it is told.
    NodeId node;
    if (const auto* send = std::get_if<SendDirective>(&effect)) {
      const auto link = run->state.links.find(send->link);
      if (link != run->state.links.end()) node = link->second;
    }
    queued.effects.emplace_back(std::move(node), std::move(effect));
  }
  queued.record = Append(*run, {run->number, now, std::move(event)});
  if (!queued.effects.empty()) queue_.push_back(std::move(queued));
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
    trace_.Say(clock_.now(), [&] {
      return absl::StrCat("service -> ", node.value.empty() ? "link" : node.value, ": ",
                          WordsOf(send->directive));
    });
    if (!node.value.empty()) invariants_.Told(run.number, node, send->directive);
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
    ForgetIfDrained(run);
  }
}

void SimService::Arm() {
  std::optional<TimePoint> next;
  for (const auto& entry : runs_) {
    const auto due = NextDeadline(entry.second->state);
    if (due && (!next || *due < *next)) next = due;
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
  for (const auto& [id, run] : runs_) {
    const std::uint64_t fingerprint = Fingerprint(run->state);
    snapshot.push_back({EncodeJournalRecord({run->number, Now(), RunOpened{id}}), run->number, 0});
    snapshot.push_back(
        {EncodeJournalRecord({run->number, Now(), RunSnapshot{run->last_link, run->state}}),
         run->number, fingerprint});
  }
  disk_.Replace(std::move(snapshot));
}

void SimService::Release() {
  while (!queue_.empty() && queue_.front().record <= disk_.synced()) {
    const Queued queued = std::move(queue_.front());
    queue_.pop_front();
    for (const auto& [node, effect] : queued.effects) Perform(*queued.run, node, effect);
  }
}

void SimService::Recover() {
  TimePoint last = Steady();
  if (!disk_.records().empty()) last = TimePoint{};
  const std::vector<SimDisk::Record> records = disk_.records();
  for (const SimDisk::Record& record : records) Replay(record, last);
  journal_clock_.emplace(last, Steady());
  std::map<SimRunNumber, const RunState*> states;
  for (const auto& [id, run] : runs_) states[run->number] = &run->state;
  invariants_.Recovered(states);
  // The streams of the last process have ended.
  std::vector<std::shared_ptr<Run>> runs;
  for (const auto& entry : runs_) runs.push_back(entry.second);
  for (const auto& run : runs) {
    const auto links = run->state.links;
    for (const auto& entry : links) StepRun(run, NodeGone{entry.first});
    ForgetIfDrained(run);
  }
}

void SimService::Replay(const SimDisk::Record& record, TimePoint& last) {
  absl::StatusOr<JournalRecord> decoded = DecodeJournalRecord(record.bytes);
  if (!decoded.ok()) {
    invariants_.ReplayedOtherwise(record.run, 0);
    return;
  }
  last = std::max(last, decoded->now);
  last_run_ = std::max(last_run_, decoded->run);
  if (auto* opened = std::get_if<RunOpened>(&decoded->what)) {
    auto run = std::make_shared<Run>();
    run->number = decoded->run;
    run->id = opened->run_id;
    run->state = MakeRun(opened->run_id, true);
    runs_[run->id] = std::move(run);
    return;
  }
  const auto it = std::find_if(runs_.begin(), runs_.end(), [&](const auto& entry) {
    return entry.second->number == decoded->run;
  });
  if (it == runs_.end()) return;
  Run& run = *it->second;
  if (std::holds_alternative<RunForgotten>(decoded->what)) {
    runs_.erase(it);
    return;
  }
  if (auto* event = std::get_if<MembershipEvent>(&decoded->what)) {
    if (const auto* joined = std::get_if<NodeJoined>(event)) {
      run.last_link = std::max(run.last_link, static_cast<std::uint64_t>(joined->link));
    }
    Step(run.state, *event, decoded->now);
  } else if (auto* snapshot = std::get_if<RunSnapshot>(&decoded->what)) {
    run.last_link = snapshot->last_link;
    run.state = std::move(snapshot->state);
  }
  if (Fingerprint(run.state) != record.fingerprint)
    invariants_.ReplayedOtherwise(run.number, record.run);
}

}  // namespace ddprun
