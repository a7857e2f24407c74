// SPDX-License-Identifier: Apache-2.0
// Core: finds the node of a run that has the client's end of a connection to the workers' TCPStore
// (STORE.md). Pure: events and times in, directives out.
//
// The nodes that have the client's address are asked first: those that named it when they joined,
// and those whose own connection to the service comes from it. If none of them has the connection,
// the address may have changed, or moved to another node: then all other nodes are asked, at most
// once in kAskAllInterval and about one connection of each of several addresses. The node that has
// it is asked about the others. An address proves nothing; only a node's answer does. But a node
// that has the address and whose kernel does not say whose the connection is counts as if it were
// its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "rendezvous/membership/membership.h"

namespace ddprun {

class ConnectionOwners {
 public:
  using Directives = std::vector<SendDirective>;

  // A member's stream has begun. `seen`: the address that it comes from; empty: this process.
  void Add(LinkId link, const Join& join, const std::string& seen);
  Directives Remove(LinkId link, TimePoint now);

  // From the store's node. Queries beyond kOwnerQueriesMax are dropped: the node has its own
  // deadline.
  Directives Ask(LinkId from, const OwnerQueries& queries, TimePoint now);
  // From a node that was asked; answers of others are ignored.
  Directives Receive(LinkId from, const OwnerAnswers& answers, TimePoint now);
  Directives Tick(TimePoint now);

  std::optional<TimePoint> NextDeadline() const;
  bool empty() const { return queries_.empty(); }

 private:
  struct Node {
    std::string host;
    std::vector<std::string> addresses;  // all, each once
    std::string seen;
  };
  enum class Stage { kByAddress, kWaitsForAll, kAll };
  struct Query {
    LinkId from{};
    OwnerQuery query;  // with the id of the node that sent it
    TimePoint deadline{};
    Stage stage = Stage::kByAddress;
    std::set<LinkId> unanswered;
    std::set<LinkId> without;  // have the address and not the connection
    std::optional<LinkId> unknown;
    std::optional<LinkId> other;  // has it as `user`
    std::optional<std::int64_t> user;
  };
  using Queries = std::map<std::uint64_t, Query>;
  // Grouped by link, so that each gets one directive of a kind.
  struct Outbox {
    std::map<LinkId, OwnerQueries> queries;
    std::map<LinkId, OwnerAnswers> answers;
    Directives refusals;
    Directives Take();
  };

  void AskByAddress(std::uint64_t id, Query& query, Outbox& out);
  void AskAllIfDue(TimePoint now, Outbox& out);
  void AskAll(std::uint64_t id, Query& query, Outbox& out);
  // The node has an address that it did not name.
  void Learn(LinkId link, const std::string& address, Outbox& out);
  void Send(std::uint64_t id, Query& query, LinkId to, Outbox& out);
  // Ends the query, or its stage, if no answer is missing. True: it is over.
  bool Settle(std::uint64_t id, Query& query, Outbox& out);
  bool IsAnyoneLeftFor(const Query& query) const;
  void Reply(const Query& query, Ownership ownership, std::optional<LinkId> about, Outbox& out);
  void Refuse(const Query& query, Outbox& out);
  void EndLate(TimePoint now, Outbox& out);

  std::map<LinkId, Node> nodes_;
  absl::flat_hash_map<std::string, std::set<LinkId>> by_address_;
  Queries queries_;  // by the id that the asked nodes are sent; the oldest first
  std::uint64_t last_id_ = 0;
  std::deque<std::uint64_t> wait_for_all_;  // may have another stage since, or have ended
  std::optional<TimePoint> asked_all_;      // when last
};

}  // namespace ddprun
