// SPDX-License-Identifier: Apache-2.0
// The messages of a stream of the store between a node and the service as plain values: one struct
// for each message of proto/ddprun.proto.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/tcpstore/store_op.h"

namespace ddprun {

struct StoreHello {
  std::string run_id;
  std::string node_id;
  std::uint64_t stream = 0;
  std::vector<std::uint64_t> unanswered;
  std::string space;  // a node has one stream for each; empty: of the node
  bool operator==(const StoreHello&) const = default;
};

struct StoreRequest {
  std::uint64_t id = 0;
  std::optional<StoreOp> op;  // absent: cancels the operation with this id
  bool operator==(const StoreRequest&) const = default;
};

struct StoreBatch {
  std::deque<StoreRequest> requests;
  std::vector<std::uint64_t> answered;
  bool operator==(const StoreBatch&) const = default;
};

struct StoreReply {
  std::uint64_t id = 0;
  StoreResult result;
  bool operator==(const StoreReply&) const = default;
};

}  // namespace ddprun
