// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/etcd/lease_keeper.h"

#include <utility>

namespace ddprun {
namespace {

// Extensions within one lease, so that one may be lost.
constexpr int kExtensions = 4;

}  // namespace

LeaseKeeper::LeaseKeeper(EtcdStore& store, EtcdLease lease, std::shared_ptr<LeaderTerm> term,
                         std::function<void()> on_gone)
    : store_(store),
      lease_(lease),
      term_(std::move(term)),
      on_gone_(std::move(on_gone)),
      thread_([this] { Keep(); }) {}

LeaseKeeper::~LeaseKeeper() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

// While etcd does not answer, nobody else can lead: the service goes on once it does.
void LeaseKeeper::Keep() {
  const auto pause =
      std::chrono::duration_cast<std::chrono::milliseconds>(lease_.ttl) / kExtensions;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const TimePoint asked = std::chrono::steady_clock::now();
    const auto left = store_.KeepAlive(lease_.id);
    if (left.ok()) term_->ExtendTo(asked + *left);
    lock.lock();
    if (absl::IsNotFound(left.status())) {
      term_->End();
      if (!stopping_) on_gone_();
      return;
    }
    stop_.wait_for(lock, pause, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_; });
  }
}

}  // namespace ddprun
