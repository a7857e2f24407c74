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
#include "rendezvous/proxy/reply_queue.h"
#include "rendezvous/store/store_coalescer.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

class WorkerSocket {
 public:
  struct Received {
    bool open = true;         // false: the stream is closed
    bool greeted = false;     // the client has shown that it speaks the protocol
    std::size_t room = 0;     // bytes that an incomplete request may take, if it is not small
    std::size_t missing = 0;  // bytes of it that have yet to come, as far as that is known
  };
  // A client is read at once, or from Hold(worker, false) on, or disconnected.
  enum class Admission { kServed, kHeld, kRefused };
  // Called on the socket's thread.
  struct Handlers {
    // A client and its connected socket, of the TCP port or not.
    std::function<Admission(StoreWorker, int fd, bool tcp)> on_client;
    // Its bytes, as they come.
    std::function<Received(StoreWorker, std::string_view bytes)> on_bytes;
    // It has read all that was sent to it, after Send() had said that it had not.
    std::function<void(StoreWorker)> on_read;
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

  // Threadsafe. False: the client is still to read some of it. Bytes for a stream that has ended
  // are dropped.
  bool Send(StoreWorker worker, std::vector<StoreValue> pieces);
  // The clients are to read before more is sent. Once they have, on_idle is called. Threadsafe.
  bool IsFull() const;
  // Whether to leave what the worker sends unread for now, and ends its stream. Both threadsafe.
  void Hold(StoreWorker worker, bool held);
  void End(StoreWorker worker);
  // Makes the thread call on_idle. Threadsafe.
  void Wake() { wake_.Notify(); }

 private:
  // Written by any thread, read by the socket's thread.
  struct Stream {
    Stream(int descriptor, bool is_tcp, bool is_held, UnreadBytes& unread)
        : tcp(is_tcp), fd(descriptor), out(unread), held(is_held) {}
    const bool tcp;
    absl::Mutex mutex;
    int fd ABSL_GUARDED_BY(mutex);  // -1: closed
    ReplyQueue out ABSL_GUARDED_BY(mutex);
    bool waits_for_room ABSL_GUARDED_BY(mutex) = false;
    bool held ABSL_GUARDED_BY(mutex);
    // On the socket's thread only.
    bool greeted = false;
    std::size_t room = 0;       // what it has of kRequestRoomBytes
    TimePoint room_since{};     // or since a further part of the request came
    std::size_t part_read = 0;  // since then
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
  // Requests that are not small.
  void TakeRoom(StoreWorker worker, Stream& stream, std::size_t bytes);
  void ReleaseRoom(Stream& stream);
  void CloseStalled();
  void CloseUnread();
  void CloseSilent();
  void Close(StoreWorker worker);
  std::shared_ptr<Stream> Find(StoreWorker worker);
  void WatchLocked(StoreWorker worker, Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stream.mutex);

  const Handlers handlers_;
  OwnedFd epoll_;
  EventFd wake_;
  std::optional<TimePoint> accept_again_;  // on the socket's thread only, as is the next
  std::uint64_t last_worker_ = 0;
  // Also on the socket's thread only.
  std::size_t room_ = 0;  // that streams have
  // The newest last, with what each needs; may have ended.
  std::vector<std::pair<StoreWorker, std::size_t>> wait_for_room_;
  std::optional<TimePoint> room_due_;    // when the next request counts as stalled
  std::optional<TimePoint> unread_due_;  // when to look again for who does not read
  UnreadBytes unread_;
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
