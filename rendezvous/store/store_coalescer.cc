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
std::string ReadKeyOf(const StoreOp& op) {
  std::string text;
  std::size_t size = 3 * sizeof(std::uint64_t);
  for (const std::string& key : op.keys) size += sizeof(std::uint64_t) + key.size();
  text.reserve(size);
  const auto append = [&text](std::uint64_t number) {
    text.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  append(static_cast<std::uint64_t>(op.verb));
  append(ToNumber(op.round));
  append(static_cast<std::uint64_t>(op.number));
  for (const std::string& key : op.keys) {
    append(key.size());
    text += key;
  }
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
  if (of_worker.size() >= kStreamOpsMax || requests_.size() >= kStreamOpsMax) {
    return refuse(absl::ResourceExhaustedError(absl::StrCat(
        "the worker has ", of_worker.size(), " unanswered store operations and the node ",
        requests_.size(), "; the limit is ", kStreamOpsMax)));
  }
  op.timeout = CutTimeout(op.timeout);
  const Caller caller{worker, id, op.number, op.timeout, now + op.timeout, false};
  if (op.verb == StoreVerb::kAdd && op.keys.size() == 1 && !alone) {
    if (FoldAdd(caller, op)) return answers;
    const std::string key = op.keys[0];
    const RequestId request = NewRequest(std::move(op), {caller}, caller.deadline, /*alone=*/false);
    Adds& adds = adds_[key];
    if (adds.gathering != 0) {  // of the other sign, or too large a sum
      requests_.at(request).alone = true;
      Queue(request);
    } else {
      adds.gathering = request;
      if (adds.under_way == 0) Queue(request);
    }
    return answers;
  }
  if (alone || !IsFoldedRead(op.verb)) {
    Queue(NewRequest(std::move(op), {caller}, caller.deadline, /*alone=*/true));
    return answers;
  }
  std::string read = ReadKeyOf(op);
  if (Join(caller, read)) return answers;
  const RequestId request = NewRequest(std::move(op), {caller}, caller.deadline, /*alone=*/false);
  reads_[std::move(read)] = request;
  Queue(request);
  return answers;
}

bool StoreCoalescer::Join(const Caller& caller, const std::string& read) {
  const auto it = reads_.find(read);
  if (it == reads_.end()) return false;
  Request& request = requests_.at(it->second);
  if (request.deadline > caller.deadline) return false;
  request.callers.push_back(caller);
  request.callers.back().late = request.ever_sent;
  by_worker_[caller.worker].emplace(caller.id, it->second);
  return true;
}

bool StoreCoalescer::FoldAdd(const Caller& caller, const StoreOp& op) {
  const auto it = adds_.find(op.keys[0]);
  if (it == adds_.end() || it->second.gathering == 0) return false;
  Request& request = requests_.at(it->second.gathering);
  if (!Fits(request.op.number, op.number)) return false;
  request.op.number += op.number;
  request.callers.push_back(caller);
  by_worker_[caller.worker].emplace(caller.id, it->second.gathering);
  return true;
}

StoreCoalescer::RequestId StoreCoalescer::NewRequest(StoreOp op, std::vector<Caller> callers,
                                                     TimePoint deadline, bool alone) {
  const RequestId id = ++last_id_;
  for (const Caller& caller : callers) by_worker_[caller.worker][caller.id] = id;
  Request& request = requests_[id];
  request.op = std::move(op);
  request.callers = std::move(callers);
  request.deadline = deadline;
  request.alone = alone;
  return id;
}

void StoreCoalescer::Cancel(StoreWorker worker, std::uint64_t id) {
  const auto of_worker = by_worker_.find(worker);
  if (of_worker == by_worker_.end()) return;
  const auto it = of_worker->second.find(id);
  if (it == of_worker->second.end()) return;
  const RequestId request = it->second;
  of_worker->second.erase(it);
  Leave(worker, request, id);
}

void StoreCoalescer::WorkerGone(StoreWorker worker) {
  auto node = by_worker_.extract(worker);
  if (!node) return;
  for (const auto& [id, request] : node.mapped()) Leave(worker, request, id);
}

void StoreCoalescer::Leave(StoreWorker worker, RequestId id, std::uint64_t worker_id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  Request& request = it->second;
  const auto caller =
      std::find_if(request.callers.begin(), request.callers.end(),
                   [&](const Caller& one) { return one.worker == worker && one.id == worker_id; });
  if (caller == request.callers.end()) return;
  if (request.op.verb == StoreVerb::kAdd) {
    // An addend of a sum that was sent stays in it: the others' counts depend on it.
    if (request.ever_sent) {
      if (request.callers.size() > 1) {
        caller->worker = StoreWorker{};
        caller->id = 0;
        return;
      }
    } else {
      request.op.number -= caller->number;
    }
  }
  request.callers.erase(caller);
  if (!request.callers.empty()) return;
  if (request.sent) cancelled_.push_back(id);
  Finish(id);
}

// ---- From the service

StoreCoalescer::Answers StoreCoalescer::Receive(std::vector<StoreReply> replies) {
  Answers answers;
  for (StoreReply& reply : replies) Answered(reply.id, std::move(reply.result), answers);
  return answers;
}

void StoreCoalescer::Answered(RequestId id, StoreResult result, Answers& answers) {
  const auto it = requests_.find(id);
  if (it == requests_.end() || !it->second.sent) return;
  Request request = Finish(id);
  if (Changes(request.op.verb)) answered_.push_back(id);
  if (request.op.verb == StoreVerb::kAdd) {
    AnswerAdd(std::move(request), std::move(result), answers);
  } else if (!Changes(request.op.verb)) {
    AnswerRead(std::move(request), std::move(result), answers);
  } else {
    for (const Caller& caller : request.callers) AddAnswer(caller, std::move(result), answers);
  }
}

// Removes it from all indexes.
StoreCoalescer::Request StoreCoalescer::Finish(RequestId id) {
  const auto it = requests_.find(id);
  Request request = std::move(it->second);
  requests_.erase(it);
  for (const Caller& caller : request.callers) {
    const auto of_worker = by_worker_.find(caller.worker);
    if (of_worker != by_worker_.end()) of_worker->second.erase(caller.id);
  }
  const StoreOp& op = request.op;
  if (op.verb == StoreVerb::kAdd && !request.alone) {
    const auto of_key = adds_.find(op.keys[0]);
    Adds& adds = of_key->second;
    if (adds.gathering == id) adds.gathering = 0;
    if (adds.under_way == id) {
      adds.under_way = 0;
      if (adds.gathering != 0) Queue(adds.gathering);
    }
    if (adds.gathering == 0 && adds.under_way == 0) adds_.erase(of_key);
  } else if (IsFoldedRead(op.verb)) {
    const auto read = reads_.find(ReadKeyOf(op));
    if (read != reads_.end() && read->second == id) reads_.erase(read);
  }
  return request;
}

// Each caller gets the count after its own addend.
void StoreCoalescer::AnswerAdd(Request request, StoreResult result, Answers& answers) {
  if (!result.status.ok() && request.callers.size() > 1 && !absl::IsAborted(result.status)) {
    // The rejected sum has changed nothing; each addend is tried by itself.
    for (Caller& caller : request.callers) {
      if (caller.id == 0) continue;
      StoreOp op = request.op;
      op.number = caller.number;
      Queue(NewRequest(std::move(op), {caller}, caller.deadline, /*alone=*/true));
    }
    return;
  }
  std::int64_t count = result.number - request.op.number;
  for (const Caller& caller : request.callers) {
    StoreResult one;
    one.status = result.status;
    count += caller.number;
    if (one.status.ok()) one.number = count;
    AddAnswer(caller, std::move(one), answers);
  }
}

void StoreCoalescer::AnswerRead(Request request, StoreResult result, Answers& answers) {
  const absl::Status& status = result.status;
  const bool time_over = absl::IsDeadlineExceeded(status);
  std::vector<Caller> again;
  Answer same;
  for (Caller& caller : request.callers) {
    if (time_over && caller.deadline <= request.deadline) {
      AddAnswer(caller, TimeOver(request.op.verb, caller.timeout, result.keys, result.number),
                answers);
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
  const RequestId id = NewRequest(request.op, std::move(again), deadline, /*alone=*/false);
  reads_[ReadKeyOf(request.op)] = id;
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
    const RequestId id = unsent_.front();
    unsent_.pop_front();
    const auto it = requests_.find(id);
    if (it == requests_.end() || it->second.sent) continue;
    Request& request = it->second;
    StoreOp op = request.op;
    for (const std::string& key : op.keys) bytes += key.size();
    for (const std::string& value : op.values) bytes += value.size();
    // A repeated wait waits for the rest of its time, but never for 0, which means not to wait.
    if (op.timeout.count() > 0) {
      const auto rest = std::chrono::ceil<milliseconds>(request.deadline - now);
      op.timeout = std::max(rest, milliseconds{1});
    }
    request.sent = true;
    request.ever_sent = true;
    if (op.verb == StoreVerb::kAdd && !request.alone) {
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
  for (auto& [id, request] : requests_) {
    request.sent = false;
    // A sum that gathers behind another ADD of its key is sent when that one is answered.
    if (request.op.verb == StoreVerb::kAdd && !request.alone && !request.ever_sent &&
        adds_.at(request.op.keys[0]).under_way != 0) {
      continue;
    }
    unsent_.push_back(id);
  }
}

std::vector<std::uint64_t> StoreCoalescer::Unanswered() const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, request] : requests_) {
    if (request.ever_sent && Changes(request.op.verb)) ids.push_back(id);
  }
  return ids;
}

// ---- Ends

StoreCoalescer::Answers StoreCoalescer::SetRound(RoundId round) {
  round_ = round;
  Answers answers;
  std::vector<RequestId> over;
  for (const auto& [id, request] : requests_) {
    if (request.op.round != round) over.push_back(id);
  }
  for (const RequestId id : over) {
    const Request request = Finish(id);
    if (request.sent) cancelled_.push_back(id);
    for (const Caller& caller : request.callers) {
      AddAnswer(caller, ErrorResult(RoundOver(request.op.round, round)), answers);
    }
  }
  return answers;
}

StoreCoalescer::Answers StoreCoalescer::Fail(const absl::Status& status) {
  Lost();
  Answers answers;
  for (const auto& [id, request] : requests_) {
    for (const Caller& caller : request.callers) AddAnswer(caller, ErrorResult(status), answers);
  }
  requests_.clear();
  unsent_.clear();
  reads_.clear();
  adds_.clear();
  by_worker_.clear();
  return answers;
}

// Only operations that wait have a timeout. A QUEUE_POP that was sent may have been served, and its
// value must not be lost.
bool StoreCoalescer::ExpiresHere(const Request& request) {
  return !request.sent && MayWait(request.op.verb) && request.op.timeout.count() > 0 &&
         !(request.op.verb == StoreVerb::kQueuePop && request.ever_sent);
}

StoreCoalescer::Answers StoreCoalescer::Tick(TimePoint now) {
  Answers answers;
  std::vector<RequestId> over;
  for (const auto& [id, request] : requests_) {
    if (ExpiresHere(request) && request.deadline <= now) over.push_back(id);
  }
  for (const RequestId id : over) {
    const Request request = Finish(id);
    const StoreOp& op = request.op;
    for (const Caller& caller : request.callers) {
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
  for (const auto& entry : requests_) {
    const Request& request = entry.second;
    if (ExpiresHere(request)) next = Earliest({next, request.deadline});
  }
  return next;
}

}  // namespace ddprun
