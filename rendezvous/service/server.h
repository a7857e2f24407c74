// SPDX-License-Identifier: Apache-2.0
// The rendezvous service in a process: inside node 0's ddprun, or alone in ddprun-rendezvous.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/observe/run_status.h"
#include "rendezvous/proxy/store_link.h"
#include "rendezvous/security/credentials.h"

namespace grpc {
class Service;
}

namespace ddprun {

class RunWatcher;  // run_event.h

struct JournalOptions {
  // Opens it and gives its contents to `replay`.
  std::function<absl::StatusOr<std::unique_ptr<Journal>>(const JournalReplay& replay)> open;
  // Called once, on any thread, when the journal cannot be written any more: nothing is sent to
  // nodes from then on, and the service must end.
  std::function<void(absl::Status)> on_failure;
};

class RendezvousServer {
 public:
  struct Options {
    std::string address;  // "10.0.0.1", "127.0.0.1", "::1", a name, or "unix:/PATH"
    int port = 0;         // 0: any free one; not used with unix:
    // The certificates of this service. Absent: plain text, for unix sockets and --insecure.
    std::optional<TlsCredentials> credentials;
    // The run of joins without a run id. Absent: such joins are refused, since two unnamed runs
    // would share one.
    std::optional<std::string> default_run_id;
    // Absent: the runs end with the service.
    std::optional<JournalOptions> journal;
    // Receives the runs' events; outlives the server. Null: none.
    RunWatcher* watcher = nullptr;
    // Listens already, at `address`. Absent: the server opens one.
    std::optional<ListeningSocket> socket;
    // Served beside its own; outlives the server. Null: none.
    grpc::Service* another_service = nullptr;
  };

  // Binds that address only. ALREADY_EXISTS if the port is in use, INVALID_ARGUMENT if the address
  // is not this host's or cannot be resolved; the message names address and port. And the errors of
  // JournalOptions::open.
  static absl::StatusOr<std::unique_ptr<RendezvousServer>> Start(Options options);

  // For a run of one node, in its agent's process: nobody else can reach the service, so it needs
  // no port, no gRPC and no thread but a timer's. `run_id` names the run of a node without one.
  static std::unique_ptr<RendezvousServer> StartLocal(const std::string& run_id,
                                                      RunWatcher* watcher = nullptr);

  // Ends all streams and stops.
  virtual ~RendezvousServer() = default;

  // A local server has port 0 and an empty target.
  virtual int port() const = 0;
  // For a client on this host: "ADDRESS:PORT" or "unix:/PATH".
  virtual std::string target() const = 0;

  // The session of the agent that this service shares a process with. It must end before the
  // service does.
  virtual std::unique_ptr<SessionClient> OpenSession(const Join& join,
                                                     SessionClient::Handler handler) = 0;

  // The store, for the agent that this service shares a process with.
  virtual std::shared_ptr<StoreConnector> store_connector() = 0;

  // Messages about the store that a node has sent in the run's round.
  virtual std::uint64_t store_messages(const std::string& run_id, const std::string& node_id) = 0;

  // Returns the status of all runs, as GetStatus does.
  virtual std::vector<RunStatus> Status() = 0;

  // Looks at once whether the journal wants a snapshot.
  virtual void CheckJournal() = 0;

  // Waits until every node that was sent a verdict has ended its stream, or the timeout.
  virtual void WaitUntilDrained(std::chrono::milliseconds timeout) = 0;
};

}  // namespace ddprun
