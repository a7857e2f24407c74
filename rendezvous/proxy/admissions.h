// SPDX-License-Identifier: Apache-2.0
// TCP clients from other hosts that wait until it is known which user they are of, as a pure
// function of their connections, the answers and the time. Nothing that they send is read before.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/store/store_coalescer.h"
#include "rendezvous/values/connection_owner.h"

namespace ddprun {

// The line for the user about a client that was refused.
std::string RefusalOf(const TcpConnection& connection, const std::string& why);

class Admissions {
 public:
  struct Decision {
    StoreWorker worker{};
    bool admitted = false;
    std::string notice;  // for the user; empty: none
  };

  // A client has connected. Returned: it is refused at once, since too many wait.
  std::optional<Decision> Add(StoreWorker worker, TcpConnection connection, TimePoint now);
  // It has disconnected.
  void Remove(StoreWorker worker);

  // Those that were not taken yet; their ids are the clients'.
  std::vector<OwnerQuery> TakeQueries();
  // The connection to the service has broken since, and queries may be lost.
  void AskAgain();

  // Absent: the client is not there any more.
  std::optional<Decision> Receive(const OwnerAnswer& answer);
  std::vector<Decision> Tick(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;

  // All, for which nothing is decided any more.
  std::vector<StoreWorker> TakeAll();

 private:
  struct Waiting {
    TcpConnection connection;
    TimePoint deadline{};
    bool asked = false;
  };

  std::map<StoreWorker, Waiting> waiting_;  // the oldest first, since their ids increase
  absl::flat_hash_map<std::string, std::size_t> by_address_;
  bool all_asked_ = true;
};

}  // namespace ddprun
