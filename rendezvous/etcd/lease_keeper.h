// SPDX-License-Identifier: Apache-2.0
// Keeps a lease in etcd alive, on a thread of its own, until it is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "rendezvous/etcd/etcd_store.h"
#include "rendezvous/etcd/leader_term.h"

namespace ddprun {

class LeaseKeeper {
 public:
  // `store`: whose calls end within a part of the lease. `on_gone`: called once, on this thread, if
  // the lease has expired or was revoked.
  LeaseKeeper(EtcdStore& store, EtcdLease lease, std::shared_ptr<LeaderTerm> term,
              std::function<void()> on_gone);
  // The lease stays.
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

 private:
  void Keep();

  EtcdStore& store_;
  const EtcdLease lease_;
  const std::shared_ptr<LeaderTerm> term_;
  const std::function<void()> on_gone_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ddprun
