// SPDX-License-Identifier: Apache-2.0
// A node's session with the rendezvous service, which may be in this process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/options/options.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/event_fd.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

// Events from gRPC's threads to the agent's thread: the only state that they share.
class EventQueue {
 public:
  // Readable while there are events.
  int fd() const { return notice_.fd(); }

  void Post(SessionEvent event) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(std::move(event));
    }
    Wake();
  }

  // Makes the agent's loop take a turn.
  void Wake() { notice_.Notify(); }

  std::vector<SessionEvent> TakeAll() ABSL_LOCKS_EXCLUDED(mutex_) {
    notice_.Clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  const EventFd notice_;
  std::mutex mutex_;
  std::vector<SessionEvent> events_ ABSL_GUARDED_BY(mutex_);
};

class NodeSession {
 public:
  // Readable when the loop is to take a turn.
  int fd() const { return events_.fd(); }
  // On any thread: makes the loop take a turn.
  void Wake() { events_.Wake(); }

  // Opens the service, if this node hosts it, and else the channel to it. `credentials`: absent for
  // plain text. `watcher` observes a service that is opened here. Errors: those of
  // OpenRendezvous().
  absl::Status OpenService(const Options& options, const Security& security,
                           const std::optional<TlsCredentials>& credentials, RunWatcher* watcher,
                           const std::function<void(const std::string&)>& on_note);
  // The same for a service that is open already.
  void UseService(RendezvousEndpoint service, const std::optional<TlsCredentials>& credentials);
  const RendezvousEndpoint& service() const { return service_; }
  bool hosts_service() const { return service_.server != nullptr; }
  // Absent: the service is in this process.
  const std::shared_ptr<ServiceChannel>& channel() const { return channel_; }
  // Of the service in this process: the name of the run of nodes that name none, and a channel for
  // commands about it.
  const std::string& own_run_id() const { return own_run_id_; }
  absl::StatusOr<std::shared_ptr<ServiceChannel>> OpenOwnChannel(const Security& security) const;

  // `timeout`: until the service must have been reached.
  void Begin(Join join, std::chrono::milliseconds timeout);
  bool is_open() const { return session_ != nullptr; }
  // Without a session the report is dropped.
  void Send(Report report);
  // False: there is no connection that could break.
  bool BreakFor(std::chrono::milliseconds pause);
  // The client has missed its own deadline: TakeEvents() says so.
  bool AnswerIsOverdue(TimePoint now) const {
    return answer_due_.has_value() && now >= *answer_due_;
  }
  // Ends with SessionEnded where the client has missed its own deadline; nothing follows that one.
  std::vector<SessionEvent> TakeEvents(TimePoint now);
  void OnAccepted(const Accepted& accepted, TimePoint now);

  // The time within which this node may reconnect.
  std::chrono::milliseconds reconnect_timeout() const { return reconnect_timeout_; }
  bool HeartbeatIsDue(TimePoint now) const {
    return heartbeat_due_.has_value() && now >= *heartbeat_due_;
  }
  void SendHeartbeat(Heartbeat heartbeat, TimePoint now);
  std::optional<TimePoint> NextDeadline() const;

  void End() { session_.reset(); }
  // Ends the channel, and waits until the other nodes have received their verdict from this node's
  // service.
  void CloseService();

 private:
  void Follow(const SessionEvent& event, TimePoint now);

  EventQueue events_;  // before what posts to it
  RendezvousEndpoint service_;
  std::string own_run_id_;
  std::shared_ptr<ServiceChannel> channel_;
  std::unique_ptr<SessionClient> session_;
  std::chrono::milliseconds heartbeat_{0};  // the maximum time between two; 0: no limit
  std::optional<TimePoint> heartbeat_due_;
  std::chrono::milliseconds reconnect_timeout_{0};
  // When the client must have said whether the service was reached: gRPC's timers end for good
  // where a thread of theirs cannot be started (seen with 1.51), and no call ends any more.
  std::optional<TimePoint> answer_due_;
  bool given_up_ = false;
};

}  // namespace ddprun
