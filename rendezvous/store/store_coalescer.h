// SPDX-License-Identifier: Apache-2.0
// The agent's half of the store, as a pure function of its workers' requests, the service's replies
// and their times. It coalesces requests, and repeats the unanswered ones on the next stream when a
// stream breaks.
//
// - Reads of the same keys are sent once. A later read joins a pending request that does not wait
//   longer than the read. The reply to a request that had been sent before may be older than the
//   read; such late reads are sent together as the next request.
// - ADDs of one key that arrive while one is unanswered are summed and sent as one.
// - An operation may be submitted as one not to be coalesced; a worker's are performed in their
//   order.
// - Each request has an id that is used once, and an operation that changes something is performed
//   once for an id (store_hub.h).
// The order of other operations that are unanswered at the same time is not defined.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/values/store_types.h"

namespace ddprun {

// One worker's stream.
enum class StoreWorker : std::uint64_t {};

class StoreCoalescer {
 public:
  // One result for all workers that sent the same request.
  struct Answer {
    StoreResult result;
    std::vector<std::pair<StoreWorker, std::uint64_t>> to;  // with the worker's own ids
  };
  using Answers = std::vector<Answer>;

  // Operations of another round are answered with ABORTED.
  Answers SetRound(RoundId round);
  RoundId round() const { return round_; }

  // From the workers.
  Answers Submit(StoreWorker worker, std::uint64_t id, StoreOp op, TimePoint now,
                 bool alone = false);
  void Cancel(StoreWorker worker, std::uint64_t id);
  void WorkerGone(StoreWorker worker);

  // From the service.
  Answers Receive(std::vector<StoreReply> replies);

  // To the service. False: there is nothing to send.
  bool HasBatch() const;
  StoreBatch TakeBatch(TimePoint now);

  // The stream to the service. Unanswered requests are sent again on the next one, which begins
  // with this list.
  void Lost();
  std::vector<std::uint64_t> Unanswered() const;
  // The service is lost: answers all pending operations with this.
  Answers Fail(const absl::Status& status);

  // Ends the waits whose timeout expires while there is no stream to the service.
  Answers Tick(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;

  std::size_t unanswered() const { return requests_.size(); }

 private:
  using RequestId = std::uint64_t;
  struct Caller {
    StoreWorker worker{};
    std::uint64_t id = 0;
    std::int64_t number = 0;  // of an ADD
    std::chrono::milliseconds timeout{0};
    TimePoint deadline;
    bool late = false;  // it arrived after the request was sent
  };
  // A request to the service.
  struct Request {
    StoreOp op;
    std::vector<Caller> callers;
    TimePoint deadline;  // of a wait
    bool sent = false;   // on this stream
    bool ever_sent = false;
    bool alone = false;  // not to be coalesced
  };
  struct Adds {
    RequestId under_way = 0;
    RequestId gathering = 0;
  };

  bool Join(const Caller& caller, const std::string& read);
  bool FoldAdd(const Caller& caller, const StoreOp& op);
  RequestId NewRequest(StoreOp op, std::vector<Caller> callers, TimePoint deadline, bool alone);
  void Queue(RequestId id) { unsent_.push_back(id); }
  void Leave(StoreWorker worker, RequestId id, std::uint64_t worker_id);
  Request Finish(RequestId id);
  void Answered(RequestId id, StoreResult result, Answers& answers);
  void AnswerAdd(Request request, StoreResult result, Answers& answers);
  void AnswerRead(Request request, StoreResult result, Answers& answers);
  void AddAnswer(const Caller& caller, StoreResult result, Answers& answers);
  static bool ExpiresHere(const Request& request);

  RoundId round_ = kNoRound;

  RequestId last_id_ = 0;
  absl::btree_map<RequestId, Request> requests_;
  std::deque<RequestId> unsent_;  // may have ids that were cancelled since
  std::deque<RequestId> cancelled_;
  std::vector<RequestId> answered_;
  absl::flat_hash_map<std::string, RequestId> reads_;  // reads that others may join
  absl::flat_hash_map<std::string, Adds> adds_;        // by key
  absl::flat_hash_map<StoreWorker, absl::flat_hash_map<std::uint64_t, RequestId>> by_worker_;
};

}  // namespace ddprun
