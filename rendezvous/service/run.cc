// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/run.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

EventTime Now() { return {std::chrono::system_clock::now(), std::chrono::steady_clock::now()}; }

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
  const auto links = membership_.links;
  for (const auto& entry : links) StepLocked(NodeGone{entry.first}, clock_.ToCores(now), nobody);
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

void Run::Joined(LinkId link, const Join& join, TimePoint now) {
  Action action(*this);
  StepLocked(NodeJoined{link, join}, clock_.ToCores(now), action.afterwards);
  const auto session = sessions_.find(link);
  if (session == sessions_.end() || !membership_.links.contains(link)) return;
  owners_.Add(link, join, session->second->Address());
}

// Neither the membership core nor the journal needs the first ones. Only members have a say in who
// is let in at the workers' TCPStore.
void Run::Reported(LinkId link, const Report& report, TimePoint now) {
  Action action(*this);
  Afterwards& afterwards = action.afterwards;
  const bool is_member = membership_.links.contains(link);
  if (const auto* lines = std::get_if<LogLines>(&report)) {
    SendLocked(watches_.Receive(membership_, link, *lines), afterwards);
  } else if (const auto* fault = std::get_if<FaultReport>(&report)) {
    TakeFaultReportLocked(link, *fault, afterwards);
  } else if (const auto* queries = std::get_if<OwnerQueries>(&report)) {
    if (is_member) SendLocked(owners_.Ask(link, *queries, clock_.ToCores(now)), afterwards);
  } else if (const auto* answers = std::get_if<OwnerAnswers>(&report)) {
    if (is_member) SendLocked(owners_.Receive(link, *answers, clock_.ToCores(now)), afterwards);
  } else {
    if (const auto* heartbeat = std::get_if<Heartbeat>(&report))
      TakeProgress(membership_, link, *heartbeat, clock_.ToCores(now), progress_);
    StepLocked(NodeReported{link, report}, clock_.ToCores(now), afterwards);
  }
}

void Run::Gone(LinkId link, TimePoint now) {
  Action action(*this);
  StepLocked(NodeGone{link}, clock_.ToCores(now), action.afterwards);
  action.afterwards.fault_answers = faults_.Fail(link);
  SendLocked(owners_.Remove(link, clock_.ToCores(now)), action.afterwards);
}

void Run::Closed(LinkId link) {
  Action action(*this);
  action.afterwards.fault_answers = faults_.Fail(link);
  sessions_.erase(link);
  last_session_ = std::chrono::steady_clock::now();
  SendLocked(owners_.Remove(link, clock_.ToCores(last_session_)), action.afterwards);
}

void Run::GiveUp(const std::string& reason, TimePoint now) {
  Action action(*this);
  std::vector<NodeId> nodes;
  nodes.reserve(membership_.members.size());
  for (const auto& entry : membership_.members) nodes.push_back(entry.first);
  for (const NodeId& id : nodes)
    StepLocked(NodeLost{id, reason}, clock_.ToCores(now), action.afterwards);
}

bool Run::Lost(const NodeId& node_id, const std::string& reason, TimePoint now) {
  Action action(*this);
  if (!membership_.members.contains(node_id)) return false;
  StepLocked(NodeLost{node_id, reason}, clock_.ToCores(now), action.afterwards);
  return true;
}

absl::StatusOr<std::string> Run::Stop(const StopRequest& request, TimePoint now) {
  Action action(*this);
  absl::StatusOr<std::string> sentence = PlanStop(membership_, request);
  if (!sentence.ok()) return sentence;
  StepLocked(RunStopped{request.by, request.now}, clock_.ToCores(now), action.afterwards);
  return sentence;
}

absl::StatusOr<std::string> Run::Drain(const DrainRequest& request, TimePoint now) {
  Action action(*this);
  const absl::StatusOr<DrainPlan> plan = PlanDrain(membership_, request);
  if (!plan.ok()) return plan.status();
  if (request.dry_run) return plan->sentence;
  StepLocked(NodeDrained{plan->node_id, request.by, request.at_next_round}, clock_.ToCores(now),
             action.afterwards);
  return plan->sentence;
}

void Run::StepLocked(const MembershipEvent& event, TimePoint now, Afterwards& afterwards) {
  if (watcher_ != nullptr) watcher_->OnStep(membership_, event, now);
  if (journal_ != nullptr) AppendLocked(ForJournal(event), now);
  for (MembershipEffect& effect : Step(membership_, event, now)) {
    if (auto* changed = std::get_if<RoundChanged>(&effect)) {
      QueueLocked(store_.Clear(changed->round), afterwards);
      continue;
    }
    if (const auto* note = std::get_if<RunNotice>(&effect)) {
      if (watcher_ != nullptr) watcher_->OnNotice(run_id_, *note);
      SendLocked(watches_.Hear(membership_, *note, Now()), afterwards);
    } else if (auto* send = std::get_if<SendDirective>(&effect)) {
      SendLocked(send->link, std::move(send->directive), afterwards);
    } else {
      SendLocked(std::get<EndStream>(effect).link, std::nullopt, afterwards);
    }
  }
  if (membership_.phase == RunPhase::kClosed) {
    SendLocked(watches_.Finish(membership_), afterwards);
  }
  afterwards.deadline = NextDeadlineLocked();
  afterwards.record = last_record_;
}

// ---- Faults

void Run::Inject(const FaultRequest& request, RunFaults::Answer answer) {
  Action action(*this);
  const auto fail = [&](absl::Status status) {
    action.afterwards.fault_answers.push_back(
        [answer = std::move(answer), status = std::move(status)] { answer(status); });
  };
  absl::StatusOr<FaultTarget> target = PlanFault(membership_, request);
  if (!target.ok()) return fail(target.status());
  if (!sessions_.contains(target->link)) {
    return fail(absl::FailedPreconditionError(absl::StrCat(
        "the node of rank ", request.rank, " is away; wait until its connection is back")));
  }
  absl::StatusOr<Fault> fault = faults_.Begin(*target, request, answer, run_id_);
  if (!fault.ok()) return fail(fault.status());
  SendAtOnceLocked({target->link, *std::move(fault)}, action.afterwards);
}

void Run::TakeFaultReportLocked(LinkId link, const FaultReport& report, Afterwards& afterwards) {
  std::optional<RunFaults::UnderWay> fault = faults_.Take(link, report.id);
  if (!fault.has_value()) return;
  const FaultRequest& request = fault->request;
  const auto node = membership_.links.find(link);
  const bool is_fault = request.kind != FaultKind::kUndo && request.kind != FaultKind::kStacks;
  if (report.done && node != membership_.links.end() && is_fault) {
    NoteFaultLocked(node->second, request.rank,
                    absl::StrCat(report.words, ", asked by ", request.by), afterwards);
  }
  afterwards.fault_answers.push_back([answer = std::move(fault->answer), report] {
    if (report.done) return answer(report);
    answer(absl::AbortedError(report.words));
  });
}

void Run::NoteFault(const std::string& words) {
  Action action(*this);
  NoteFaultLocked({}, -1, words, action.afterwards);
}

void Run::NoteFaultLocked(const NodeId& node_id, int rank, std::string words,
                          Afterwards& afterwards) {
  RunNotice note;
  note.kind = NoticeKind::kFault;
  note.round = membership_.round;
  note.node_id = node_id;
  if (const auto it = membership_.members.find(node_id); it != membership_.members.end()) {
    note.host = it->second.join.host;
    note.node_rank = it->second.node_rank;
  }
  if (rank >= 0) note.rank = rank;
  note.words = absl::StrCat("chaos: ", words);
  if (watcher_ != nullptr) watcher_->OnNotice(run_id_, note);
  SendLocked(watches_.Hear(membership_, note, Now()), afterwards);
}

// ---- Watchers

absl::StatusOr<WatchId> Run::OpenWatch(std::shared_ptr<NewsSink> sink, const RunQuestion& question,
                                       const std::string& from) {
  Action action(*this);
  RunWatches::Effects effects;
  absl::StatusOr<WatchId> id = watches_.Open(membership_, std::move(sink), question, from, effects);
  SendLocked(std::move(effects), action.afterwards);
  return id;
}

void Run::CloseWatch(WatchId id) {
  Action action(*this);
  SendLocked(watches_.Close(membership_, id), action.afterwards);
}

std::optional<RunNews> Run::TakeNews(WatchId id, bool& over) {
  Action action(*this);
  RunWatches::Effects effects;
  std::optional<RunNews> news = watches_.Take(membership_, id, over, effects);
  SendLocked(std::move(effects), action.afterwards);
  return news;
}

RunStatus Run::Status(TimePoint now, std::size_t nodes_max, std::size_t ranks_max) {
  absl::MutexLock lock(&mutex_);
  return StatusOf(membership_, clock_.ToCores(now), nodes_max, progress_, ranks_max);
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
  now_ = clock_.ToCores(now);
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
    ToStore message{it->second, {}};
    if (say != nullptr) {
      message.reply = std::move(say->reply);
    } else {
      message.reply = std::move(std::get<StoreEnd>(effect).status);
    }
    SendOrHoldLocked(std::move(message), afterwards);
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
  const TimePoint now = clock_.ToCores(steady);
  const auto membership_due = NextDeadline(membership_);
  if (membership_due && *membership_due <= now) StepLocked(ddprun::Tick{}, now, action.afterwards);
  now_ = now;
  QueueLocked(store_.Tick(now), action.afterwards);
  SendLocked(owners_.Tick(now), action.afterwards);
  std::optional<TimePoint> next = NextDeadlineLocked();
  store_armed_ = store_.NextDeadline();
  action.afterwards.deadline.reset();
  if (next) next = clock_.ToSteady(*next);
  return next;
}

std::optional<TimePoint> Run::NextDeadlineLocked() const {
  return Earliest({store_.NextDeadline(), NextDeadline(membership_), owners_.NextDeadline()});
}

Run::Ending Run::ending() {
  absl::MutexLock lock(&mutex_);
  return {.is_ending = IsEnding(membership_),
          .is_drained = IsDrained(membership_) && sessions_.empty(),
          .deserted = sessions_.empty() ? std::optional(last_session_) : std::nullopt};
}

// ---- Sending, and the journal

void Run::SendLocked(LinkId link, std::optional<Directive> directive, Afterwards& afterwards) {
  const auto it = sessions_.find(link);
  if (it != sessions_.end())
    SendOrHoldLocked(ToSession{it->second, std::move(directive)}, afterwards);
}

void Run::SendAtOnceLocked(SendDirective send, Afterwards& afterwards) {
  const auto it = sessions_.find(send.link);
  if (it != sessions_.end()) afterwards.Push(ToSession{it->second, std::move(send.directive)});
}

// The set of watches is sent in order with the node's other directives. Acknowledgements need no
// order: only a node that knows that it is in the run gets them.
void Run::SendLocked(RunWatches::Effects effects, Afterwards& afterwards) {
  for (SendDirective& send : effects.directives) {
    if (std::holds_alternative<LogsTaken>(send.directive)) {
      SendAtOnceLocked(std::move(send), afterwards);
    } else {
      SendLocked(send.link, std::move(send.directive), afterwards);
      afterwards.record = last_record_;
    }
  }
  for (auto& sink : effects.awake) afterwards.flushes.push_back(std::move(sink));
  for (auto& sink : effects.replaced) afterwards.replaced.push_back(std::move(sink));
}

void Run::SendLocked(ConnectionOwners::Directives directives, Afterwards& afterwards) {
  for (SendDirective& send : directives) SendAtOnceLocked(std::move(send), afterwards);
  if (!owners_.empty()) afterwards.deadline = NextDeadlineLocked();
}

void Run::SendOrHoldLocked(Message message, Afterwards& afterwards) {
  afterwards.says = true;
  if (journal_ != nullptr) {
    held_.push_back({last_record_, std::move(message)});
    return;
  }
  afterwards.Push(std::move(message));
}

void Run::Afterwards::Push(Message message) {
  std::visit(Overloaded{[&](ToSession& to) {
                          if (to.directive) {
                            to.sink->Push(*std::move(to.directive));
                          } else {
                            to.sink->End();
                          }
                          flushes.push_back(std::move(to.sink));
                        },
                        [&](ToStore& to) {
                          if (auto* reply = std::get_if<StoreReply>(&to.reply)) {
                            to.sink->Push(std::move(*reply));
                          } else {
                            to.sink->End(std::move(std::get<absl::Status>(to.reply)));
                          }
                          if (flushes.empty() || flushes.back() != to.sink)
                            flushes.push_back(std::move(to.sink));
                        }},
             message);
}

// A message may show the effect of another thread's step, so it waits for that thread's record too.
void Run::Perform(Afterwards afterwards) {
  if (journal_ != nullptr && afterwards.says) {
    if (!journal_->Commit(afterwards.record)) return Release(std::nullopt, afterwards);
    Release(afterwards.record, afterwards);
  }
  for (const auto& sink : afterwards.flushes) sink->Flush();
  for (const auto& watcher : afterwards.replaced) {
    watcher->Replaced(absl::ResourceExhaustedError(
        absl::StrCat("too many commands watch run '", run_id_,
                     "' (ddpctl logs, ddpctl stop --wait), and a newer one took this one's place; "
                     "end some of them")));
  }
  for (const auto& answer : afterwards.fault_answers) answer();
  if (afterwards.deadline) arm_timer_(clock_.ToSteady(*afterwards.deadline));
  if (journal_ != nullptr && journal_->WantsSnapshot()) {
    arm_timer_(std::chrono::steady_clock::now());
  }
}

// Without a record the journal has failed for good: held messages own their streams, and the
// service waits for the end of those.
void Run::Release(std::optional<std::uint64_t> record, Afterwards& afterwards) {
  std::deque<Held> released;
  absl::MutexLock release(&release_mutex_);
  {
    absl::MutexLock lock(&mutex_);
    if (!record.has_value()) return released.swap(held_);
    while (!held_.empty() && held_.front().record <= *record) {
      released.push_back(std::move(held_.front()));
      held_.pop_front();
    }
  }
  for (Held& one : released) afterwards.Push(std::move(one.message));
}

void Run::AppendLocked(ServiceJournal::What what, TimePoint now) {
  last_record_ = journal_->Append(number_, now, std::move(what));
}

void Run::Forget() {
  Action action(*this);
  SendLocked(watches_.Finish(membership_), action.afterwards);
  if (journal_ != nullptr) AppendLocked(RunForgotten{}, now_);
}

void Run::AddParts(std::vector<std::string>& parts) {
  AddSnapshotParts(number_, now_, last_link_, membership_, store_, parts);
}

}  // namespace ddprun
