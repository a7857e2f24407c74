// SPDX-License-Identifier: Apache-2.0
// A rendezvous service of which several run, on different machines, with one journal in etcd. One
// leads, by a lease; the others stand by, and one of them leads when the lease is gone. Nodes find
// the leader by asking all of them (client/session_client.h).
//
// What leads is fenced by etcd: a leader that was stopped and wakes up cannot write, and sends
// nothing while it is not sure that it leads (etcd/leader_key.h, etcd/leader_term.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/service/server.h"

namespace ddprun {

class ElectedService {
 public:
  struct Options {
    RendezvousServer::Options server;  // but for its journal
    EtcdAddress etcd;
    EtcdTlsFiles etcd_tls;
    // Waits where another service leads. Otherwise that is an error, once the lease of an earlier
    // process has had the time to expire.
    bool stands_by = true;
    // Both are called on a thread of this service. A sentence for people: who leads.
    std::function<void(const std::string& sentence)> on_note;
    // Once: the service cannot go on, and must be destroyed.
    std::function<void(const absl::Status& why)> on_end;
  };

  // Listens at the address at once. Errors: those of RendezvousServer::Start() and
  // EtcdClient::Make().
  static absl::StatusOr<std::unique_ptr<ElectedService>> Start(Options options);

  // Ends all streams and stops. Another service may lead at once.
  virtual ~ElectedService() = default;

  virtual int port() const = 0;
  // "ADDRESS:PORT", as other machines reach it.
  virtual std::string target() const = 0;
  virtual bool leads() = 0;
  // As RendezvousServer's; empty while it stands by.
  virtual std::vector<RunStatus> Status() = 0;
  virtual void WaitUntilDrained(std::chrono::milliseconds timeout) = 0;
};

}  // namespace ddprun
