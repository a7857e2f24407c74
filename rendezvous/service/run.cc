// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/run.h"

#include <chrono>
#include <map>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

// Without the time in heartbeats: it changes with each, and the node reports it again.
MembershipEvent ForJournal(MembershipEvent event) {
  if (auto* reported = std::get_if<NodeReported>(&event)) {
    if (auto* heartbeat = std::get_if<Heartbeat>(&reported->report)) heartbeat->time = {};
  }
  return event;
}

}  // namespace

Run::Run(std::string run_id, ArmTimer arm_timer, ServiceJournal* journal, RunWatcher* watcher,
         std::string begun_by)
    : run_id_(std::move(run_id)),
      begun_by_(std::move(begun_by)),
      arm_timer_(std::move(arm_timer)),
      watcher_(watcher),
      journal_(journal),
      number_(journal == nullptr ? 0 : journal->NewRun(run_id_)),
      membership_(MakeRun(run_id_, /*durable=*/journal != nullptr)),
      store_(membership_.round) {
  if (journal != nullptr) TellJournalOfMutations();
}

Run::Run(std::uint64_t number, ReplayedRun replayed, ArmTimer arm_timer, ServiceJournal& journal,
         TimePoint now, RunWatcher* watcher)
    : run_id_(replayed.membership.run_id),
      arm_timer_(std::move(arm_timer)),
      watcher_(watcher),
      journal_(&journal),
      number_(number),
      membership_(std::move(replayed.membership)),
      store_(std::move(replayed.store)),
      last_link_(replayed.last_link) {
  TellJournalOfMutations();
  absl::MutexLock lock(&mutex_);
  last_session_ = now;
  Afterwards nobody;
  const std::map<LinkId, NodeId> links = membership_.links;
  for (const auto& entry : links) StepLocked(NodeGone{entry.first}, ToCores(now), nobody);
}

void Run::TellJournalOfMutations() {
  store_.set_on_mutation([this](const std::string& node_id, std::uint64_t id, const StoreOp& op) {
    mutex_.AssertHeld();
    AppendLocked(StoreMutation{node_id, id, op}, now_);
  });
}

// ---- Membership

std::optional<LinkId> Run::Admit(std::shared_ptr<DirectiveSink> sink, bool resume) {
  absl::MutexLock lock(&mutex_);
  // A node that reconnects may still need the verdict. A new node belongs to a new run: the members
  // of this one have their verdict, and their streams may take a while to end.
  const bool nobody = !resume || membership_.members.empty();
  if (membership_.phase == RunPhase::kClosed && nobody) return std::nullopt;
  const LinkId link{++last_link_};
  sessions_.emplace(link, std::move(sink));
  return link;
}

void Run::Reported(LinkId link, const Report& report, TimePoint now) {
  // Neither the membership core nor the journal needs them.
  if (const auto* lines = std::get_if<LogLines>(&report)) return ReceiveLines(link, *lines);
  if (const auto* fault = std::get_if<FaultReport>(&report))
    return ReceiveFaultReport(link, *fault);
  if (const auto* queries = std::get_if<OwnerQueries>(&report))
    return ReceiveQueries(link, *queries, ToCores(now));
  if (const auto* answers = std::get_if<OwnerAnswers>(&report))
    return ReceiveAnswers(link, *answers, ToCores(now));
  Action action(*this);
  TakeProgressLocked(link, report, ToCores(now));
  StepLocked(NodeReported{link, report}, ToCores(now), action.afterwards);
}

void Run::TakeProgressLocked(LinkId link, const Report& report, TimePoint now) {
  const auto* heartbeat = std::get_if<Heartbeat>(&report);
  if (heartbeat == nullptr || heartbeat->progress_round == kNoRound) return;
  const auto node = membership_.links.find(link);
  if (node == membership_.links.end()) return;
  // A report of ranks that do not move has no progress, or that of the one before.
  if (heartbeat->progress == Progress{}) return;
  ToldProgress& told = progress_[node->second];
  if (told.round == heartbeat->progress_round && told.progress == heartbeat->progress) return;
  told = {heartbeat->progress_round, heartbeat->progress, now};
  if (progress_.size() <= membership_.members.size()) return;
  std::erase_if(progress_, [this](const auto& entry) {
    mutex_.AssertHeld();
    return !membership_.members.contains(entry.first);
  });
}

void Run::Gone(LinkId link, TimePoint now) {
  Action action(*this);
  StepLocked(NodeGone{link}, ToCores(now), action.afterwards);
  FailFaultsLocked(link, action.afterwards);
  PushLocked(owners_.Remove(link, ToCores(now)), action.afterwards);
}

void Run::Closed(LinkId link) {
  Action action(*this);
  FailFaultsLocked(link, action.afterwards);
  sessions_.erase(link);
  last_session_ = std::chrono::steady_clock::now();
  PushLocked(owners_.Remove(link, ToCores(last_session_)), action.afterwards);
}

std::optional<TimePoint> Run::deserted() {
  absl::MutexLock lock(&mutex_);
  return sessions_.empty() ? std::optional(last_session_) : std::nullopt;
}

void Run::GiveUp(const std::string& reason, TimePoint now) {
  Action action(*this);
  std::vector<NodeId> nodes;
  nodes.reserve(membership_.members.size());
  for (const auto& entry : membership_.members) nodes.push_back(entry.first);
  for (const NodeId& id : nodes) StepLocked(NodeLost{id, reason}, ToCores(now), action.afterwards);
}

bool Run::Lost(const NodeId& node_id, const std::string& reason, TimePoint now) {
  Action action(*this);
  if (!membership_.members.contains(node_id)) return false;
  StepLocked(NodeLost{node_id, reason}, ToCores(now), action.afterwards);
  return true;
}

absl::StatusOr<std::string> Run::Stop(const StopRequest& request, TimePoint now) {
  Action action(*this);
  absl::StatusOr<std::string> sentence = PlanStop(membership_, request);
  if (!sentence.ok()) return sentence;
  StepLocked(RunStopped{request.by, request.now}, ToCores(now), action.afterwards);
  return sentence;
}

absl::StatusOr<std::string> Run::Drain(const DrainRequest& request, TimePoint now) {
  Action action(*this);
  const absl::StatusOr<DrainPlan> plan = PlanDrain(membership_, request);
  if (!plan.ok()) return plan.status();
  if (request.dry_run) return plan->sentence;
  StepLocked(NodeDrained{plan->node_id, request.by, request.at_next_round}, ToCores(now),
             action.afterwards);
  return plan->sentence;
}

void Run::StepLocked(const MembershipEvent& event, TimePoint now, Afterwards& afterwards) {
  if (journal_ != nullptr) AppendLocked(ForJournal(event), now);
  for (MembershipEffect& effect : Step(membership_, event, now)) {
    if (auto* changed = std::get_if<RoundChanged>(&effect)) {
      QueueLocked(store_.Clear(changed->round), afterwards);
      continue;
    }
    if (const auto* note = std::get_if<RunNotice>(&effect)) {
      if (watcher_ != nullptr) watcher_->OnNotice(run_id_, *note);
      HearNoteLocked(*note, afterwards);
      continue;
    }
    auto* send = std::get_if<SendDirective>(&effect);
    const LinkId link = send != nullptr ? send->link : std::get<EndStream>(effect).link;
    const auto it = sessions_.find(link);
    if (it == sessions_.end()) continue;
    ToSession word{it->second, std::nullopt};
    if (send != nullptr) word.directive = std::move(send->directive);
    SayLocked(std::move(word), afterwards);
  }
  FinishWatchesLocked(afterwards);
  afterwards.deadline = NextDeadlineLocked();
  afterwards.record = last_record_;
}

RunStatus Run::Status(TimePoint now, std::size_t nodes_max) {
  absl::MutexLock lock(&mutex_);
  return StatusOf(membership_, ToCores(now), nodes_max, progress_);
}

// ---- The store

absl::StatusOr<StorePeer> Run::OpenStore(std::shared_ptr<ReplySink> sink, const StoreHello& hello) {
  Action action(*this);
  if (!membership_.members.contains(NodeId{hello.node_id})) {
    return absl::PermissionDeniedError(
        absl::StrCat("node '", Printable(hello.node_id.substr(0, kNameBytesMax)),
                     "' asks for the store of run '", run_id_, "' and is not in it"));
  }
  const StorePeer peer{++last_peer_};
  store_streams_.emplace(peer, std::move(sink));
  QueueLocked(store_.Open(peer, hello), action.afterwards);
  return peer;
}

void Run::Receive(StorePeer peer, StoreBatch& batch, TimePoint now) {
  Action action(*this);
  now_ = ToCores(now);
  const std::uint64_t before = store_.operations();
  QueueLocked(store_.Receive(peer, batch, now_), action.afterwards);
  if (watcher_ != nullptr) watcher_->OnStoreOperations(run_id_, store_.operations() - before);
}

void Run::StoreGone(StorePeer peer) {
  absl::MutexLock lock(&mutex_);
  store_.Gone(peer);
  store_streams_.erase(peer);
}

std::uint64_t Run::store_messages(const NodeId& node_id) {
  absl::MutexLock lock(&mutex_);
  return store_.messages(node_id.value);
}

void Run::QueueLocked(StoreEffects effects, Afterwards& afterwards) {
  for (StoreEffect& effect : effects) {
    auto* say = std::get_if<StoreSay>(&effect);
    const auto it =
        store_streams_.find(say != nullptr ? say->peer : std::get<StoreEnd>(effect).peer);
    if (it == store_streams_.end()) continue;
    ToStore word{it->second, {}};
    if (say != nullptr) {
      word.words = std::move(say->reply);
    } else {
      word.words = std::move(std::get<StoreEnd>(effect).status);
    }
    SayLocked(std::move(word), afterwards);
  }
  afterwards.record = last_record_;
  const auto due = store_.NextDeadline();
  if (!due || (store_armed_ && *store_armed_ <= *due)) return;
  store_armed_ = due;
  afterwards.deadline = Earliest({afterwards.deadline, due});
}

// ---- Time

std::optional<TimePoint> Run::Tick(TimePoint steady) {
  Action action(*this);
  const TimePoint now = ToCores(steady);
  const auto membership_due = NextDeadline(membership_);
  if (membership_due && *membership_due <= now) StepLocked(ddprun::Tick{}, now, action.afterwards);
  now_ = now;
  QueueLocked(store_.Tick(now), action.afterwards);
  PushLocked(owners_.Tick(now), action.afterwards);
  std::optional<TimePoint> next = NextDeadlineLocked();
  store_armed_ = store_.NextDeadline();
  action.afterwards.deadline.reset();
  if (next) next = ToSteady(*next);
  return next;
}

std::optional<TimePoint> Run::NextDeadlineLocked() const {
  return Earliest({store_.NextDeadline(), NextDeadline(membership_), owners_.NextDeadline()});
}

bool Run::ending() {
  absl::MutexLock lock(&mutex_);
  return IsEnding(membership_);
}

bool Run::drained() {
  absl::MutexLock lock(&mutex_);
  return IsDrained(membership_) && sessions_.empty();
}

// ---- Sending, and the journal

void Run::SayLocked(Word word, Afterwards& afterwards) {
  afterwards.says = true;
  if (journal_ != nullptr) {
    held_.push_back({last_record_, std::move(word)});
    return;
  }
  Push(std::move(word), afterwards);
}

void Run::Push(Word word, Afterwards& afterwards) {
  std::visit(Overloaded{[&](ToSession& to) {
                          if (to.directive) {
                            to.sink->Push(*std::move(to.directive));
                          } else {
                            to.sink->End();
                          }
                          afterwards.flushes.push_back(std::move(to.sink));
                        },
                        [&](ToStore& to) {
                          if (auto* reply = std::get_if<StoreReply>(&to.words)) {
                            to.sink->Push(std::move(*reply));
                          } else {
                            to.sink->End(std::move(std::get<absl::Status>(to.words)));
                          }
                          if (afterwards.flushes.empty() || afterwards.flushes.back() != to.sink) {
                            afterwards.flushes.push_back(std::move(to.sink));
                          }
                        }},
             word);
}

// A message may show the effect of another thread's step, so it waits for that thread's record too.
void Run::Perform(Afterwards afterwards) {
  if (journal_ != nullptr && afterwards.says) {
    if (!journal_->Commit(afterwards.record)) {
      DropHeld();
      return;
    }
    Release(afterwards);
  }
  for (const auto& sink : afterwards.flushes) sink->Flush();
  for (const auto& watcher : afterwards.replaced) {
    watcher->Replaced(absl::ResourceExhaustedError(
        absl::StrCat("too many commands watch run '", run_id_,
                     "' (ddpctl logs, ddpctl stop --wait), and a newer one took this one's place; "
                     "end some of them")));
  }
  for (const auto& answer : afterwards.fault_answers) answer();
  if (afterwards.deadline) arm_timer_(ToSteady(*afterwards.deadline));
  if (journal_ != nullptr && journal_->WantsSnapshot()) {
    arm_timer_(std::chrono::steady_clock::now());
  }
}

void Run::Release(Afterwards& afterwards) {
  absl::MutexLock release(&release_mutex_);
  std::vector<Word> words;
  {
    absl::MutexLock lock(&mutex_);
    while (!held_.empty() && held_.front().record <= afterwards.record) {
      words.push_back(std::move(held_.front().word));
      held_.pop_front();
    }
  }
  for (Word& word : words) Push(std::move(word), afterwards);
}

// The journal has failed for good. Held messages own their streams, and the service waits for the
// end of those.
void Run::DropHeld() {
  std::deque<Held> never_said;
  absl::MutexLock lock(&mutex_);
  never_said.swap(held_);
}

void Run::AppendLocked(ServiceJournal::What what, TimePoint now) {
  last_record_ = journal_->Append(number_, now, std::move(what));
}

void Run::Forget() {
  EndWatches();
  absl::MutexLock lock(&mutex_);
  if (journal_ != nullptr) AppendLocked(RunForgotten{}, now_);
}

void Run::AddParts(std::vector<std::string>& parts) {
  AddSnapshotParts(number_, now_, last_link_, membership_, store_, parts);
}

}  // namespace ddprun
