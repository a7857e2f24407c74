// SPDX-License-Identifier: Apache-2.0
// The agent's half of the store, as a pure function of what its workers ask, what the service says
// and when. It answers what it keeps, makes one of what several ask, and asks again on another
// stream what a broken one has left unanswered.
//
// - What the service says may be kept is, until the service asks to forget it, and is answered from
//   for kKeepTrust after the sending of the last question that was answered.
// - Reads of the same keys are asked once. One that comes later joins a question under way that is
//   not older than kKeepTrust and does not wait longer than it; if the answer may not be kept, what
//   came after the question was sent is asked anew, since the answer may be older than it.
// - ADDs of one key that come while one is not answered yet gather, and go up as one.
// - Whatever is asked has a number that is used once; what changes something is performed once
// under
//   it (store_hub.h).
// No order is promised between operations that are unanswered at the same time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/values/store_batch.h"

namespace ddprun {

// One worker's stream.
enum class StoreWorker : std::uint64_t {};

class StoreCoalescer {
 public:
  // One result for those who asked the same.
  struct Answer {
    StoreResult result;
    std::vector<std::pair<StoreWorker, std::uint64_t>> to;  // with the worker's own ids
  };
  using Answers = std::vector<Answer>;

  // Operations of another round are answered with ABORTED.
  Answers SetRound(RoundId round);
  RoundId round() const { return round_; }

  // From the workers.
  Answers Submit(StoreWorker worker, std::uint64_t id, StoreOp op, TimePoint now);
  void Cancel(StoreWorker worker, std::uint64_t id);
  void WorkerGone(StoreWorker worker);

  // From the service.
  Answers Receive(std::vector<StoreReply> replies);

  // To the service. False: there is nothing to say.
  bool HasBatch() const;
  StoreBatch TakeBatch(TimePoint now);

  // The stream to the service. What is unanswered is said again on the next one, which begins with
  // this list.
  void Lost();
  std::vector<std::uint64_t> Unanswered() const;
  // The service is lost for good, as far as the operations of now are concerned.
  Answers Fail(const absl::Status& status);

  // While there is no stream nobody else watches over the time of those who wait.
  Answers Tick(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;

  std::size_t unanswered() const { return asks_.size(); }

 private:
  using AskId = std::uint64_t;
  struct Asker {
    StoreWorker worker{};
    std::uint64_t id = 0;
    std::int64_t number = 0;  // of an ADD
    std::chrono::milliseconds timeout{0};
    TimePoint deadline;
    bool late = false;  // it came after the question was sent
  };
  // A question to the service.
  struct Ask {
    StoreOp op;
    std::vector<Asker> askers;
    TimePoint deadline;             // of a wait
    std::optional<TimePoint> sent;  // on this stream
    bool ever_sent = false;
    bool alone = false;  // not to be folded with others
  };
  struct Adds {
    AskId under_way = 0;
    AskId gathering = 0;
  };

  bool AnswerFromKept(const StoreOp& op, TimePoint now, StoreResult* result) const;
  bool Join(const Asker& asker, const std::string& question, TimePoint now);
  bool FoldAdd(const Asker& asker, const StoreOp& op);
  AskId NewAsk(StoreOp op, std::vector<Asker> askers, TimePoint deadline, bool alone);
  void Queue(AskId id) { unsent_.push_back(id); }
  void Leave(StoreWorker worker, AskId id, std::uint64_t worker_id);
  Ask Finish(AskId id);
  void Answered(AskId id, StoreReply reply, Answers& answers);
  void AnswerAdd(Ask ask, StoreResult result, Answers& answers);
  void AnswerRead(Ask ask, StoreReply reply, Answers& answers);
  void Keep(const StoreOp& op, const StoreResult& result);
  void Give(const Asker& asker, StoreResult result, Answers& answers);
  static bool IsForgottenInTime(const Ask& ask);

  RoundId round_ = kNoRound;

  AskId last_id_ = 0;
  absl::btree_map<AskId, Ask> asks_;
  std::deque<AskId> unsent_;  // those that were given up in the meantime are passed over
  std::deque<AskId> cancelled_;
  std::vector<AskId> answered_;
  std::uint64_t forgotten_ = 0;
  absl::flat_hash_map<std::string, AskId> questions_;  // reads that others may join
  absl::flat_hash_map<std::string, Adds> adds_;        // by key
  absl::flat_hash_map<StoreWorker, absl::flat_hash_map<std::uint64_t, AskId>> by_worker_;

  absl::flat_hash_map<std::string, std::optional<std::string>> kept_;  // no value: it exists
  TimePoint trusted_until_{};
};

}  // namespace ddprun
