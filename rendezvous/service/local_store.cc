// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/local_store.h"

#include <chrono>
#include <utility>

namespace ddprun {

// The first thread to find work drains the link, including work that other threads add meanwhile:
// one thread at a time calls the handlers, and never while it holds a lock.
class LocalLink final : public StoreLink,
                        public ReplySink,
                        public std::enable_shared_from_this<LocalLink> {
 public:
  LocalLink(std::shared_ptr<LocalStore> store, StoreHello hello, Handlers handlers)
      : store_(std::move(store)), hello_(std::move(hello)), handlers_(std::move(handlers)) {}

  void Begin() override {
    {
      absl::MutexLock lock(&mutex_);
      self_ = shared_from_this();
      draining_ = true;
    }
    std::shared_ptr<Run> run = store_->Find(hello_.run_id);
    if (run == nullptr) {
      EndWith(UnknownRun(hello_.run_id));
    } else if (auto peer = run->OpenStore(shared_from_this(), hello_); peer.ok()) {
      peer_ = *peer;
      run_ = std::move(run);
    } else {
      EndWith(peer.status());
    }
    Drain();
  }

  void Flush() override {
    {
      absl::MutexLock lock(&mutex_);
      more_ = true;
      if (draining_ || self_ == nullptr) return;
      draining_ = true;
    }
    Drain();
  }

  void Resume() override {
    {
      absl::MutexLock lock(&mutex_);
      pause_.End();
    }
    Flush();
  }

  void Cancel() override {
    EndWith(absl::OkStatus());
    Flush();
  }

  void CancelAndWait() {
    EndWith(absl::UnavailableError("the rendezvous service ended"));
    Flush();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &LocalLink::IsOver));
  }

  // ReplySink
  void Push(StoreReply reply) override {
    absl::MutexLock lock(&mutex_);
    replies_.push_back(std::move(reply));
  }
  void End(absl::Status status) override { EndWith(std::move(status)); }

 private:
  void EndWith(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    if (!end_) end_ = std::move(status);
  }

  bool IsOver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return self_ == nullptr; }

  // Called by the thread that has set draining_.
  void Drain() {
    const std::shared_ptr<LocalLink> keep = shared_from_this();
    while (true) {
      std::vector<StoreReply> replies;
      {
        absl::MutexLock lock(&mutex_);
        if (end_) break;
        if (pause_.paused()) {
          draining_ = false;
          return;
        }
        replies.swap(replies_);
        more_ = false;
      }
      bool moved = !replies.empty();
      if (moved && !handlers_.on_replies(std::move(replies))) {
        absl::MutexLock lock(&mutex_);
        pause_.Begin();
        continue;
      }
      if (!batch_.requests.empty() || handlers_.take_batch(&batch_)) {
        moved = true;
        run_->Receive(peer_, batch_, std::chrono::steady_clock::now());
      }
      absl::MutexLock lock(&mutex_);
      if (moved || more_ || end_) continue;
      draining_ = false;
      return;
    }
    Finish();
  }

  void Finish() {
    absl::Status status;
    {
      absl::MutexLock lock(&mutex_);
      status = *end_;
      replies_.clear();
    }
    if (run_ != nullptr) run_->StoreGone(peer_);
    handlers_.on_end(status);
    // The handlers own the owner of this link. draining_ stays set, so they are not called again.
    handlers_ = {};
    run_.reset();
    absl::MutexLock lock(&mutex_);
    self_.reset();
  }

  const std::shared_ptr<LocalStore> store_;
  const StoreHello hello_;
  Handlers handlers_;  // used by the draining thread only, as are the next three
  std::shared_ptr<Run> run_;
  StorePeer peer_ = kNoPeer;
  StoreBatch batch_;  // what is left of it

  absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool more_ ABSL_GUARDED_BY(mutex_) = false;
  ReplyPause pause_ ABSL_GUARDED_BY(mutex_);
  std::vector<StoreReply> replies_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<LocalLink> self_ ABSL_GUARDED_BY(mutex_);  // from Begin() to the end
};

std::shared_ptr<StoreLink> LocalStore::Open(StoreHello hello, StoreLink::Handlers handlers) {
  auto link =
      std::make_shared<LocalLink>(shared_from_this(), std::move(hello), std::move(handlers));
  absl::MutexLock lock(&mutex_);
  std::erase_if(links_, [](const auto& one) { return one.expired(); });
  links_.push_back(link);
  return link;
}

std::shared_ptr<Run> LocalStore::Find(const std::string& run_id) {
  absl::MutexLock lock(&mutex_);
  return registry_ == nullptr ? nullptr : registry_->Find(run_id);
}

void LocalStore::Close() {
  std::vector<std::weak_ptr<LocalLink>> links;
  {
    absl::MutexLock lock(&mutex_);
    registry_ = nullptr;
    links.swap(links_);
  }
  for (const auto& weak : links) {
    if (const std::shared_ptr<LocalLink> link = weak.lock()) link->CancelAndWait();
  }
}

}  // namespace ddprun
