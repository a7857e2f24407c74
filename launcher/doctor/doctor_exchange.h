// SPDX-License-Identifier: Apache-2.0
// How the nodes of `ddprun doctor` meet: in a run of their own, whose store carries their messages.
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
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/options/options.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/client/store_client.h"
#include "rendezvous/proxy/store_proxy.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

// Where the nodes of a checkup meet: nothing of the run itself is touched.
std::string DoctorRunId(const Options& options);

class DoctorExchange {
 public:
  struct Config {
    Options options;
    std::string host;
    NodeId node_id;
    std::string address;  // of this node
    int probe_port = 0;
    std::chrono::milliseconds timeout{0};  // for the others to come
    // Called once with the reason if this node waits for long.
    std::function<void(const std::string& reason)> on_waiting;
  };

  // `rendezvous` is where they meet, `credentials` this node's. Waits until all have come, or the
  // time is over and some have. UNAVAILABLE, FAILED_PRECONDITION and what a node that joins may be
  // refused with: one sentence.
  static absl::StatusOr<std::unique_ptr<DoctorExchange>> Open(
      Config config, RendezvousEndpoint rendezvous, std::optional<TlsCredentials> credentials);

  // Reports to the service that this node is done, and waits for the others.
  ~DoctorExchange();

  int index() const { return start_.node_rank; }  // among those that came
  int count() const { return start_.node_count; }

  absl::Status Set(const std::string& key, const std::string& value);
  // Waits for another node to set it. DEADLINE_EXCEEDED, UNAVAILABLE.
  absl::StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds timeout);
  // Returns when all nodes have called it, or the time is over.
  void Meet(const std::string& name, std::chrono::milliseconds timeout);

 private:
  DoctorExchange(Config config, RendezvousEndpoint rendezvous)
      : config_(std::move(config)), rendezvous_(std::move(rendezvous)) {}
  void Take(SessionEvent event) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Join(std::optional<TlsCredentials> credentials);
  absl::Status AwaitStart();
  absl::Status OpenStore();

  // Constant after Open().
  Config config_;
  RendezvousEndpoint rendezvous_;
  Start start_;
  std::shared_ptr<ServiceChannel> channel_;
  std::unique_ptr<SessionClient> session_;
  std::unique_ptr<StoreProxy> proxy_;
  std::shared_ptr<StoreClient> store_;

  // What the service sent, written by gRPC's threads.
  std::mutex mutex_;
  std::condition_variable said_;
  std::optional<Start> started_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);  // no round comes, or it is over
  std::string reason_ ABSL_GUARDED_BY(mutex_);                 // why this node waits
};

}  // namespace ddprun
