// SPDX-License-Identifier: Apache-2.0
// The unix socket on which an agent serves the store to its workers, and the TCP port of torch's
// clients, with one thread that accepts, reads and keeps deadlines. Only processes of the agent's
// user may connect to the former; the caller decides who may to the latter.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/event_fd.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/store/store_coalescer.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

class WorkerSocket {
 public:
  struct Received {
    bool open = true;      // false: the stream is closed
    bool greeted = false;  // the client has shown that it speaks the protocol
    bool large = false;    // an incomplete request is large (kLargeRequestBytes)
  };
  // Called on the socket's thread.
  struct Handlers {
    // A client and its connected socket, of the TCP port or not. False: it is refused.
    std::function<bool(StoreWorker, int fd, bool tcp)> on_client;
    // Its bytes, as they come.
    std::function<Received(StoreWorker, std::string_view bytes)> on_bytes;
    std::function<void(StoreWorker)> on_gone;
    // Called after all available bytes, and at the time that it returned last.
    std::function<std::optional<TimePoint>()> on_idle;
  };

  explicit WorkerSocket(Handlers handlers) : handlers_(std::move(handlers)) {}
  ~WorkerSocket() { Stop(); }

  // Errors of ListenOnPath(), and RESOURCE_EXHAUSTED.
  absl::Status Listen(const std::string& path);

  // Creates the socket again if its file was removed; open streams continue. Errors are those of
  // Listen().
  absl::Status EnsureListening();

  // Also accepts TCP clients from now on, in place of those of an earlier call. They have at most
  // half of the files that the process may open. RESOURCE_EXHAUSTED.
  absl::Status ServeTcp(ListeningSocket listener);

  // Ends all streams and removes the socket; returns when no handler will be called again.
  void Stop();

  // Threadsafe. Bytes for a stream that has ended are dropped.
  void Send(StoreWorker worker, std::string bytes);
  // Whether to leave what the worker sends unread for now, and ends its stream. Both threadsafe.
  void Hold(StoreWorker worker, bool held);
  void End(StoreWorker worker);
  // Makes the thread call on_idle. Threadsafe.
  void Wake() { wake_.Notify(); }

 private:
  // Written by any thread, read by the socket's thread.
  struct Stream {
    Stream(int descriptor, bool is_tcp) : tcp(is_tcp), fd(descriptor) {}
    const bool tcp;
    absl::Mutex mutex;
    int fd ABSL_GUARDED_BY(mutex);  // -1: closed
    std::string out ABSL_GUARDED_BY(mutex);
    std::size_t out_begin ABSL_GUARDED_BY(mutex) = 0;
    bool reading ABSL_GUARDED_BY(mutex) = true;
    bool waits_for_room ABSL_GUARDED_BY(mutex) = false;  // for a large request
    bool held ABSL_GUARDED_BY(mutex) = false;
    // On the socket's thread only.
    bool greeted = false;
    std::optional<TimePoint> large_since;  // it has one of the kLargeRequestsMax places
  };

  void Loop();
  bool IsStopping() ABSL_LOCKS_EXCLUDED(mutex_);
  int Patience(std::optional<TimePoint> due) const;
  void Accept(bool tcp);
  void Admit(OwnedFd fd, bool tcp);
  void Pause() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ListenAgain();
  bool WatchListenersLocked(unsigned events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnEvent(StoreWorker worker, unsigned events);
  bool Read(StoreWorker worker, Stream& stream);
  // Large requests.
  void TakeRoom(StoreWorker worker, Stream& stream);
  void GiveRoom(Stream& stream);
  void CloseStalled();
  void CloseSilent();
  void Close(StoreWorker worker);
  std::shared_ptr<Stream> Find(StoreWorker worker);
  bool WriteLocked(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stream.mutex);
  void WatchLocked(StoreWorker worker, Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stream.mutex);

  const Handlers handlers_;
  OwnedFd epoll_;
  EventFd wake_;
  std::optional<TimePoint> accept_again_;  // on the socket's thread only, as is the next
  std::uint64_t last_worker_ = 0;
  // Also on the socket's thread only.
  std::size_t large_ = 0;                   // streams with a large request
  std::vector<StoreWorker> wait_for_room_;  // the newest last; may have ended
  std::optional<TimePoint> room_due_;       // when the next large request counts as stalled
  // TCP streams in the order in which they came, until they greet or their time is over.
  std::deque<std::pair<TimePoint, StoreWorker>> silent_;
  absl::Mutex mutex_;
  ListeningSocket listener_ ABSL_GUARDED_BY(mutex_);
  ListeningSocket tcp_listener_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<StoreWorker, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::size_t tcp_streams_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t tcp_streams_max_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ddprun
