// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_coalescer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

absl::Status RoundOver(RoundId of_op, RoundId of_node) {
  return absl::AbortedError(absl::StrCat("the store operation belongs to round ", ToNumber(of_op),
                                         ", but the node is in round ", ToNumber(of_node)));
}

bool IsFoldedRead(StoreVerb verb) {
  return verb == StoreVerb::kGet || verb == StoreVerb::kMultiGet || verb == StoreVerb::kWait ||
         verb == StoreVerb::kWaitCount;
}

// A key that is equal for equal reads, and only for those.
std::string QuestionOf(const StoreOp& op) {
  std::string text =
      absl::StrCat(static_cast<int>(op.verb), ":", ToNumber(op.round), ":", op.number);
  for (const std::string& key : op.keys) absl::StrAppend(&text, ":", key.size(), ":", key);
  return text;
}

bool Fits(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return (a >= 0) == (b >= 0) && !__builtin_add_overflow(a, b, &sum);
}

milliseconds CutTimeout(milliseconds timeout) {
  return std::clamp(timeout, milliseconds{0}, milliseconds(kStoreTimeoutMax));
}

}  // namespace

// ---- From the workers

StoreCoalescer::Answers StoreCoalescer::Submit(StoreWorker worker, std::uint64_t id, StoreOp op,
                                               TimePoint now, bool alone) {
  Answers answers;
  const auto refuse = [&](absl::Status status) {
    answers.push_back({ErrorResult(std::move(status)), {{worker, id}}});
    return std::move(answers);
  };
  if (op.round != round_) return refuse(RoundOver(op.round, round_));
  auto& of_worker = by_worker_[worker];
  if (id == 0 || of_worker.contains(id)) {
    return refuse(absl::InvalidArgumentError(
        absl::StrCat("store request id ", id, " is 0 or not answered yet")));
  }
  if (of_worker.size() >= kStreamOpsMax || asks_.size() >= kStreamOpsMax) {
    return refuse(absl::ResourceExhaustedError(absl::StrCat(
        "the worker has ", of_worker.size(), " unanswered store operations and the node ",
        asks_.size(), "; the limit is ", kStreamOpsMax)));
  }
  op.timeout = CutTimeout(op.timeout);
  const Caller caller{worker, id, op.number, op.timeout, now + op.timeout, false};
  if (op.verb == StoreVerb::kAdd && op.keys.size() == 1 && !alone) {
    if (FoldAdd(caller, op)) return answers;
    const std::string key = op.keys[0];
    const AskId ask = NewAsk(std::move(op), {caller}, caller.deadline, /*alone=*/false);
    Adds& adds = adds_[key];
    if (adds.gathering != 0) {  // of the other sign, or too large a sum
      asks_.at(ask).alone = true;
      Queue(ask);
    } else {
      adds.gathering = ask;
      if (adds.under_way == 0) Queue(ask);
    }
    return answers;
  }
  if (alone || !IsFoldedRead(op.verb)) {
    Queue(NewAsk(std::move(op), {caller}, caller.deadline, /*alone=*/true));
    return answers;
  }
  std::string question = QuestionOf(op);
  if (Join(caller, question)) return answers;
  const AskId ask = NewAsk(std::move(op), {caller}, caller.deadline, /*alone=*/false);
  questions_[std::move(question)] = ask;
  Queue(ask);
  return answers;
}

bool StoreCoalescer::Join(const Caller& caller, const std::string& question) {
  const auto it = questions_.find(question);
  if (it == questions_.end()) return false;
  Ask& ask = asks_.at(it->second);
  if (ask.deadline > caller.deadline) return false;
  ask.callers.push_back(caller);
  ask.callers.back().late = ask.ever_sent;
  by_worker_[caller.worker].emplace(caller.id, it->second);
  return true;
}

bool StoreCoalescer::FoldAdd(const Caller& caller, const StoreOp& op) {
  const auto it = adds_.find(op.keys[0]);
  if (it == adds_.end() || it->second.gathering == 0) return false;
  Ask& ask = asks_.at(it->second.gathering);
  if (!Fits(ask.op.number, op.number)) return false;
  ask.op.number += op.number;
  ask.callers.push_back(caller);
  by_worker_[caller.worker].emplace(caller.id, it->second.gathering);
  return true;
}

StoreCoalescer::AskId StoreCoalescer::NewAsk(StoreOp op, std::vector<Caller> callers,
                                             TimePoint deadline, bool alone) {
  const AskId id = ++last_id_;
  for (const Caller& caller : callers) by_worker_[caller.worker][caller.id] = id;
  Ask& ask = asks_[id];
  ask.op = std::move(op);
  ask.callers = std::move(callers);
  ask.deadline = deadline;
  ask.alone = alone;
  return id;
}

void StoreCoalescer::Cancel(StoreWorker worker, std::uint64_t id) {
  const auto of_worker = by_worker_.find(worker);
  if (of_worker == by_worker_.end()) return;
  const auto it = of_worker->second.find(id);
  if (it == of_worker->second.end()) return;
  const AskId ask = it->second;
  of_worker->second.erase(it);
  Leave(worker, ask, id);
}

void StoreCoalescer::WorkerGone(StoreWorker worker) {
  auto node = by_worker_.extract(worker);
  if (!node) return;
  for (const auto& [id, ask] : node.mapped()) Leave(worker, ask, id);
}

void StoreCoalescer::Leave(StoreWorker worker, AskId id, std::uint64_t worker_id) {
  const auto it = asks_.find(id);
  if (it == asks_.end()) return;
  Ask& ask = it->second;
  const auto caller = std::find_if(ask.callers.begin(), ask.callers.end(), [&](const Caller& one) {
    return one.worker == worker && one.id == worker_id;
  });
  if (caller == ask.callers.end()) return;
  if (ask.op.verb == StoreVerb::kAdd) {
    // An addend of a sum that was sent stays in it: the others' counts depend on it.
    if (ask.ever_sent) {
      if (ask.callers.size() > 1) {
        caller->worker = StoreWorker{};
        caller->id = 0;
        return;
      }
    } else {
      ask.op.number -= caller->number;
    }
  }
  ask.callers.erase(caller);
  if (!ask.callers.empty()) return;
  if (ask.sent) cancelled_.push_back(id);
  Finish(id);
}

// ---- From the service

StoreCoalescer::Answers StoreCoalescer::Receive(std::vector<StoreReply> replies) {
  Answers answers;
  for (StoreReply& reply : replies) Answered(reply.id, std::move(reply.result), answers);
  return answers;
}

void StoreCoalescer::Answered(AskId id, StoreResult result, Answers& answers) {
  const auto it = asks_.find(id);
  if (it == asks_.end() || !it->second.sent) return;
  Ask ask = Finish(id);
  if (Changes(ask.op.verb)) answered_.push_back(id);
  if (ask.op.verb == StoreVerb::kAdd) {
    AnswerAdd(std::move(ask), std::move(result), answers);
  } else if (!Changes(ask.op.verb)) {
    AnswerRead(std::move(ask), std::move(result), answers);
  } else {
    for (const Caller& caller : ask.callers) AddAnswer(caller, std::move(result), answers);
  }
}

// Removes it from all indexes.
StoreCoalescer::Ask StoreCoalescer::Finish(AskId id) {
  const auto it = asks_.find(id);
  Ask ask = std::move(it->second);
  asks_.erase(it);
  for (const Caller& caller : ask.callers) {
    const auto of_worker = by_worker_.find(caller.worker);
    if (of_worker != by_worker_.end()) of_worker->second.erase(caller.id);
  }
  const StoreOp& op = ask.op;
  if (op.verb == StoreVerb::kAdd && !ask.alone) {
    const auto of_key = adds_.find(op.keys[0]);
    Adds& adds = of_key->second;
    if (adds.gathering == id) adds.gathering = 0;
    if (adds.under_way == id) {
      adds.under_way = 0;
      if (adds.gathering != 0) Queue(adds.gathering);
    }
    if (adds.gathering == 0 && adds.under_way == 0) adds_.erase(of_key);
  } else if (IsFoldedRead(op.verb)) {
    const auto question = questions_.find(QuestionOf(op));
    if (question != questions_.end() && question->second == id) questions_.erase(question);
  }
  return ask;
}

// Each caller gets the count after its own addend.
void StoreCoalescer::AnswerAdd(Ask ask, StoreResult result, Answers& answers) {
  if (!result.status.ok() && ask.callers.size() > 1 && !absl::IsAborted(result.status)) {
    // The rejected sum has changed nothing; each addend is tried by itself.
    for (Caller& caller : ask.callers) {
      if (caller.id == 0) continue;
      StoreOp op = ask.op;
      op.number = caller.number;
      Queue(NewAsk(std::move(op), {caller}, caller.deadline, /*alone=*/true));
    }
    return;
  }
  std::int64_t count = result.number - ask.op.number;
  for (const Caller& caller : ask.callers) {
    StoreResult one;
    one.status = result.status;
    count += caller.number;
    if (one.status.ok()) one.number = count;
    AddAnswer(caller, std::move(one), answers);
  }
}

void StoreCoalescer::AnswerRead(Ask ask, StoreResult result, Answers& answers) {
  const absl::Status& status = result.status;
  const bool time_over = absl::IsDeadlineExceeded(status);
  std::vector<Caller> again;
  Answer same;
  for (Caller& caller : ask.callers) {
    if (time_over && caller.deadline <= ask.deadline) {
      AddAnswer(caller, TimeOver(ask.op.verb, caller.timeout, result.keys, result.number), answers);
    } else if (time_over || (status.ok() && caller.late)) {
      again.push_back(caller);
    } else {
      same.to.emplace_back(caller.worker, caller.id);
    }
  }
  if (!same.to.empty()) {
    same.result = std::move(result);
    answers.push_back(std::move(same));
  }
  if (again.empty()) return;
  TimePoint deadline = again.front().deadline;
  for (Caller& caller : again) {
    caller.late = false;
    deadline = std::min(deadline, caller.deadline);
  }
  const AskId id = NewAsk(ask.op, std::move(again), deadline, /*alone=*/false);
  questions_[QuestionOf(ask.op)] = id;
  Queue(id);
}

void StoreCoalescer::AddAnswer(const Caller& caller, StoreResult result, Answers& answers) {
  if (caller.id != 0) answers.push_back({std::move(result), {{caller.worker, caller.id}}});
}

// ---- To the service

bool StoreCoalescer::HasBatch() const {
  return !unsent_.empty() || !cancelled_.empty() || answered_.size() >= kUnsaidAnswersMax;
}

StoreBatch StoreCoalescer::TakeBatch(TimePoint now) {
  StoreBatch batch;
  batch.answered.swap(answered_);
  while (!cancelled_.empty() && batch.requests.size() < kStoreBatchOps) {
    batch.requests.push_back({cancelled_.front(), std::nullopt});
    cancelled_.pop_front();
  }
  std::size_t bytes = 0;
  while (!unsent_.empty() && bytes < kStoreBatchBytes && batch.requests.size() < kStoreBatchOps) {
    const AskId id = unsent_.front();
    unsent_.pop_front();
    const auto it = asks_.find(id);
    if (it == asks_.end() || it->second.sent) continue;
    Ask& ask = it->second;
    StoreOp op = ask.op;
    for (const std::string& key : op.keys) bytes += key.size();
    for (const std::string& value : op.values) bytes += value.size();
    // A repeated wait waits for the rest of its time, but never for 0, which means not to wait.
    if (op.timeout.count() > 0) {
      const auto rest = std::chrono::ceil<milliseconds>(ask.deadline - now);
      op.timeout = std::max(rest, milliseconds{1});
    }
    ask.sent = true;
    ask.ever_sent = true;
    if (op.verb == StoreVerb::kAdd && !ask.alone) {
      Adds& adds = adds_[op.keys[0]];
      adds.under_way = id;
      if (adds.gathering == id) adds.gathering = 0;
    }
    batch.requests.push_back({id, std::move(op)});
  }
  return batch;
}

void StoreCoalescer::Lost() {
  cancelled_.clear();
  answered_.clear();
  unsent_.clear();
  for (auto& [id, ask] : asks_) {
    ask.sent = false;
    // A sum that gathers behind another ADD of its key is sent when that one is answered.
    if (ask.op.verb == StoreVerb::kAdd && !ask.alone && !ask.ever_sent &&
        adds_.at(ask.op.keys[0]).under_way != 0) {
      continue;
    }
    unsent_.push_back(id);
  }
}

std::vector<std::uint64_t> StoreCoalescer::Unanswered() const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, ask] : asks_) {
    if (ask.ever_sent && Changes(ask.op.verb)) ids.push_back(id);
  }
  return ids;
}

// ---- Ends

StoreCoalescer::Answers StoreCoalescer::SetRound(RoundId round) {
  round_ = round;
  Answers answers;
  std::vector<AskId> over;
  for (const auto& [id, ask] : asks_) {
    if (ask.op.round != round) over.push_back(id);
  }
  for (const AskId id : over) {
    const Ask ask = Finish(id);
    if (ask.sent) cancelled_.push_back(id);
    for (const Caller& caller : ask.callers) {
      AddAnswer(caller, ErrorResult(RoundOver(ask.op.round, round)), answers);
    }
  }
  return answers;
}

StoreCoalescer::Answers StoreCoalescer::Fail(const absl::Status& status) {
  Lost();
  Answers answers;
  for (const auto& [id, ask] : asks_) {
    for (const Caller& caller : ask.callers) AddAnswer(caller, ErrorResult(status), answers);
  }
  asks_.clear();
  unsent_.clear();
  questions_.clear();
  adds_.clear();
  by_worker_.clear();
  return answers;
}

// Only operations that wait have a timeout. A QUEUE_POP that was sent may have been served, and its
// value must not be lost.
bool StoreCoalescer::ExpiresHere(const Ask& ask) {
  return !ask.sent && MayWait(ask.op.verb) && ask.op.timeout.count() > 0 &&
         !(ask.op.verb == StoreVerb::kQueuePop && ask.ever_sent);
}

StoreCoalescer::Answers StoreCoalescer::Tick(TimePoint now) {
  Answers answers;
  std::vector<AskId> over;
  for (const auto& [id, ask] : asks_) {
    if (ExpiresHere(ask) && ask.deadline <= now) over.push_back(id);
  }
  for (const AskId id : over) {
    const Ask ask = Finish(id);
    const StoreOp& op = ask.op;
    for (const Caller& caller : ask.callers) {
      AddAnswer(caller,
                ErrorResult(absl::DeadlineExceededError(absl::StrCat(
                    "waited ", caller.timeout.count(), " ms for ", op.keys.size(),
                    op.keys.size() == 1 ? " key" : " keys",
                    " of the store while the rendezvous service could not be reached"))),
                answers);
    }
  }
  return answers;
}

std::optional<TimePoint> StoreCoalescer::NextDeadline() const {
  std::optional<TimePoint> next;
  for (const auto& entry : asks_) {
    const Ask& ask = entry.second;
    if (ExpiresHere(ask)) next = Earliest({next, ask.deadline});
  }
  return next;
}

}  // namespace ddprun
