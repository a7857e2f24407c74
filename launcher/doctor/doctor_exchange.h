// SPDX-License-Identifier: Apache-2.0
// How the nodes of `ddprun doctor` exchange messages: they join a run of their own, whose store
// carries the messages as JSON.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "launcher/doctor/doctor_rules.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/options/options.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/proxy/store_link.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

// The result, which node 0 sends to all nodes.
struct DoctorReport {
  int exit_code = 0;
  std::string text;
  std::string json;  // empty if too large to send: only node 0 then has it
};

// As JSON. Facts have at most kFactsBytesMax bytes, a report kReportBytesMax: an environment or
// JSON that does not fit is omitted.
std::string Encode(const NodeFacts& facts);
std::string Encode(const std::vector<PairFacts>& pairs);
std::string Encode(const DoctorReport& report);

// Of one of these types. INVALID_ARGUMENT: one sentence.
template <typename Value>
absl::StatusOr<Value> Parse(const std::string& words);

// The id of the checkup's own run, so that it never touches the run of the same name.
std::string DoctorRunId(const Options& options);

class DoctorExchange {
 public:
  // Called once with the reason if this node waits longer than kNoticeDelay.
  using OnWaiting = std::function<void(const std::string& reason)>;

  // `facts`, `credentials`: of this node. Waits until all nodes have joined, or until --timeout if
  // only some have. UNAVAILABLE, FAILED_PRECONDITION, or the error with which the service rejects a
  // join: one sentence.
  static absl::StatusOr<std::unique_ptr<DoctorExchange>> Open(
      const Options& options, const NodeFacts& facts, const NodeId& node_id,
      const OnWaiting& on_waiting, RendezvousEndpoint rendezvous,
      std::optional<TlsCredentials> credentials);

  // Reports to the service that this node is done, and waits for the other nodes.
  ~DoctorExchange();

  int index() const { return start_.node_rank; }  // among the nodes that joined
  int count() const { return start_.node_count; }

  absl::Status Set(const std::string& key, const std::string& value);
  // Waits until another node has set the key. DEADLINE_EXCEEDED, UNAVAILABLE, and those of Parse().
  template <typename Value>
  absl::StatusOr<Value> Get(const std::string& key, std::chrono::milliseconds timeout) {
    const StoreResult result =
        Call({.verb = StoreVerb::kGet, .keys = {key}, .values = {}, .timeout = timeout});
    if (!result.status.ok()) return result.status;
    return Parse<Value>(result.values.empty() ? "" : result.values.front().text());
  }
  // A barrier: returns when all nodes have called it, or at the timeout.
  void Meet(const std::string& name, std::chrono::milliseconds timeout);

 private:
  explicit DoctorExchange(RendezvousEndpoint rendezvous) : rendezvous_(std::move(rendezvous)) {}
  void Join(const Options& options, const NodeFacts& facts, const NodeId& node_id,
            std::optional<TlsCredentials> credentials);
  absl::Status AwaitStart(std::chrono::milliseconds timeout, const OnWaiting& on_waiting);
  void OpenStore(const NodeId& node_id);
  // Waits for the reply, longer than the operation's own timeout.
  StoreResult Call(StoreOp op) ABSL_LOCKS_EXCLUDED(mutex_);
  void Take(SessionEvent event) ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeRequest(StoreBatch* batch) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeReplies(std::vector<StoreReply> replies) ABSL_LOCKS_EXCLUDED(mutex_);

  // Constant after Open().
  RendezvousEndpoint rendezvous_;
  std::shared_ptr<ServiceChannel> channel_;
  std::unique_ptr<SessionClient> session_;
  Start start_;
  std::shared_ptr<StoreLink> store_;

  // Exchanged with gRPC's threads.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Start> started_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);  // the session or its round
  std::string reason_ ABSL_GUARDED_BY(mutex_);                 // why this node waits
  // The one operation of the store that is under way.
  std::uint64_t request_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<StoreOp> request_ ABSL_GUARDED_BY(mutex_);  // until it is sent
  std::optional<StoreResult> result_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> answered_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> store_ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
