// SPDX-License-Identifier: Apache-2.0
// The store for the agent in the service's own process: without messages.
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/proxy/store_link.h"
#include "rendezvous/service/run_registry.h"

namespace ddprun {

class LocalLink;

class LocalStore final : public StoreConnector, public std::enable_shared_from_this<LocalStore> {
 public:
  explicit LocalStore(RunRegistry& registry) : registry_(&registry) {}

  std::shared_ptr<StoreLink> Open(StoreHello hello, StoreLink::Handlers handlers) override;

  // The service ends: ends all links; the registry is not used afterwards.
  void Close();

 private:
  friend class LocalLink;
  // Null: there is no such run, or Close() was called.
  std::shared_ptr<Run> Find(const std::string& run_id);

  absl::Mutex mutex_;
  RunRegistry* registry_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<LocalLink>> links_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
