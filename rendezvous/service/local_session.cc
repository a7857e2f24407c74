// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/local_session.h"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace ddprun {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

// The first thread to push an event drains the queue, including events that other threads push
// meanwhile: one thread at a time calls the handler, and never while it holds a lock.
class LocalSession final : public DirectiveSink, public std::enable_shared_from_this<LocalSession> {
 public:
  LocalSession(RunRegistry& registry, SessionClient::Handler handler)
      : registry_(registry), handler_(std::move(handler)) {}

  void Begin(const Join& join) {
    auto place = registry_.Admit(join, shared_from_this());
    if (place.ok()) {
      place_ = *std::move(place);
      place_->run->Joined(place_->link, join, Now());
      return;
    }
    Push(Refused{place.status()});
    End();
    Flush();
  }

  void Send(const Report& report) {
    if (place_) place_->run->Reported(place_->link, report, Now());
  }

  // The handler is not called afterwards.
  void Close() {
    bool finished = false;
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
      mutex_.Await(absl::Condition(this, &LocalSession::IsIdle));
      finished = finished_;
    }
    if (!place_) return;
    // Nothing can be lost between service and agent in one process: the node has its verdict.
    if (finished) place_->run->Reported(place_->link, Leave{}, Now());
    place_->run->Gone(place_->link, Now());
    registry_.Closed(*place_);
  }

  // DirectiveSink
  void Push(Directive directive) override {
    absl::MutexLock lock(&mutex_);
    finished_ = finished_ || std::holds_alternative<Finish>(directive);
    events_.emplace_back(std::move(directive));
  }
  void End() override {
    absl::MutexLock lock(&mutex_);
    events_.emplace_back(SessionEnded{absl::OkStatus()});
  }
  void Flush() override {
    while (std::optional<std::vector<SessionEvent>> events = TakeToDrain()) {
      for (SessionEvent& event : *events) handler_(std::move(event));
      absl::MutexLock lock(&mutex_);
      draining_ = false;
    }
  }

 private:
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !draining_; }

  // Absent: there is nothing, or another thread drains the queue.
  std::optional<std::vector<SessionEvent>> TakeToDrain() {
    absl::MutexLock lock(&mutex_);
    if (draining_ || ended_ || events_.empty()) return std::nullopt;
    draining_ = true;
    for (const SessionEvent& event : events_) {
      if (std::holds_alternative<SessionEnded>(event)) ended_ = true;
    }
    return std::exchange(events_, {});
  }

  RunRegistry& registry_;
  const SessionClient::Handler handler_;
  std::optional<RunRegistry::Place> place_;  // of the node's own thread

  absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // no event is delivered any more
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was delivered
  std::vector<SessionEvent> events_ ABSL_GUARDED_BY(mutex_);
};

class LocalSessionClient final : public SessionClient {
 public:
  explicit LocalSessionClient(std::shared_ptr<LocalSession> session)
      : session_(std::move(session)) {}
  ~LocalSessionClient() override { session_->Close(); }
  void Send(Report report) override { session_->Send(report); }

 private:
  const std::shared_ptr<LocalSession> session_;
};

}  // namespace

std::unique_ptr<SessionClient> OpenLocalSession(RunRegistry& registry, const Join& join,
                                                SessionClient::Handler handler) {
  auto session = std::make_shared<LocalSession>(registry, std::move(handler));
  session->Begin(join);
  return std::make_unique<LocalSessionClient>(std::move(session));
}

}  // namespace ddprun
