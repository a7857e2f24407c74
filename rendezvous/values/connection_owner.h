// SPDX-License-Identifier: Apache-2.0
// Which user has the client's end of a TCP connection to the workers' TCPStore. The node that
// serves the store cannot see that of a client on another host, so it asks the service, which asks
// the nodes. Messages between nodes and service, as plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// As the server has it. Addresses are numeric, in the form of PlainAddress().
struct TcpConnection {
  std::string client_address;
  int client_port = 0;
  std::string server_address;
  int server_port = 0;
  bool operator==(const TcpConnection&) const = default;
};

// From the store's node to the service, and from there to the nodes that may have the client.
struct OwnerQuery {
  std::uint64_t id = 0;  // chosen by the sender
  TcpConnection connection;
  // Set by the service: the node's own connection to the service comes from this address.
  bool from_seen_address = false;
  bool operator==(const OwnerQuery&) const = default;
};

// Sent once, and lost with the stream. Not for the membership core.
struct OwnerQueries {
  std::vector<OwnerQuery> queries;
  bool operator==(const OwnerQueries&) const = default;
};

enum class Ownership {
  kOwn = 1,    // the user of the node's agent, or root
  kOtherUser,  // OwnerAnswer::user
  kNone,       // no process in the node's network namespace has it
  kUnknown,    // the node's kernel does not say
  kNoReply,    // set by the service: the node has not answered in time
};

struct OwnerAnswer {
  std::uint64_t id = 0;  // of the query
  Ownership ownership = Ownership::kNone;
  std::optional<std::int64_t> user;
  std::string host;  // set by the service: of the node that this is about; empty: all nodes
  bool operator==(const OwnerAnswer&) const = default;
};

// The way back, likewise.
struct OwnerAnswers {
  std::vector<OwnerAnswer> answers;
  bool operator==(const OwnerAnswers&) const = default;
};

// Service to the nodes that answered kOtherUser or kNone: the store's node has refused it.
struct ConnectionRefused {
  TcpConnection connection;
  std::optional<std::int64_t> user;  // which has it; absent: no process of the node
  bool operator==(const ConnectionRefused&) const = default;
};

}  // namespace ddprun
