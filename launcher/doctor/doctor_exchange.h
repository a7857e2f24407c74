// SPDX-License-Identifier: Apache-2.0
// How the nodes of `ddprun doctor` exchange messages: they join a run of their own, whose store
// carries the messages as JSON.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/agent/node_session.h"
#include "launcher/doctor/doctor_rules.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/options/options.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/client/session_client.h"
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

// Reads one of these types. INVALID_ARGUMENT: one sentence.
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
      const std::optional<TlsCredentials>& credentials);

  // Reports to the service that this node is done, and waits for the other nodes.
  ~DoctorExchange();

  int index() const { return started_->node_rank; }  // among the nodes that joined
  int count() const { return started_->node_count; }

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
  class StoreCalls;

  DoctorExchange(RendezvousEndpoint rendezvous, const std::optional<TlsCredentials>& credentials);
  void Join(const Options& options, const NodeFacts& facts, const NodeId& node_id);
  absl::Status AwaitStart(std::chrono::milliseconds timeout, const OnWaiting& on_waiting);
  // Handles the session's events until `done`, or until the deadline.
  void Await(TimePoint deadline, const std::function<bool()>& done);
  void OnEvent(SessionEvent event);
  void OnDirective(Directive directive);
  StoreResult Call(StoreOp op);

  NodeSession session_;
  std::optional<Start> started_;
  std::optional<absl::Status> ended_;  // the session or its round
  std::string reason_;                 // why this node waits
  std::shared_ptr<StoreCalls> store_;  // once the round has started
};

}  // namespace ddprun
