// SPDX-License-Identifier: Apache-2.0
// What a client of torch's TCPStore writes to an agent's port.
#include <optional>

#include "rendezvous/base/limits.h"
#include "rendezvous/store/kv_store.h"
#include "rendezvous/tcpstore/session.h"
#include "tests/fuzz/fuzz.h"
#include "tests/testing/tcpstore_requests.h"

namespace ddprun::fuzz {
namespace {

struct Ended {
  std::string out;
  bool accepted = false;
};

// A session in front of a store, which gets `bytes` in pieces.
Ended Run(std::string_view bytes, std::size_t piece) {
  constexpr RoundId kRound{1};
  KvStore store(kRound, {.keys_max = 1000, .bytes_max = 1 << 20});
  TcpStoreSession session(kRound);
  Ended ended;
  while (!bytes.empty()) {
    const std::size_t count = std::min(piece, bytes.size());
    session.Receive(bytes.substr(0, count));
    bytes.remove_prefix(count);
    for (auto requests = session.TakeRequests(); !requests.empty();
         requests = session.TakeRequests()) {
      Require(requests.size() <= kTcpStoreOpsMax, "a client has few operations under way");
      for (auto& request : requests) {
        if (!request.op) {
          store.Cancel(StoreTicket{request.id});
          continue;
        }
        for (const auto& answer :
             store.Submit(StoreTicket{request.id}, *std::move(request.op), TimePoint{})) {
          session.Answer(static_cast<std::uint64_t>(answer.ticket), answer.result);
        }
      }
    }
    for (const StoreValue& part : session.TakeOutput()) ended.out += part.text();
  }
  ended.accepted = session.status().ok();
  return ended;
}

}  // namespace

std::vector<std::string> Seeds() {
  using tcpstore::Request;
  using tcpstore::Text;
  using tcpstore::U64;
  const std::string hello = tcpstore::kHello + Request(13, "1234");
  const std::string key = Text("/key");
  const std::string keys = U64(2) + key + Text("/other");
  return {
      hello + Request(1, key, Text("v")) + Request(3, key) + Request(9, key, Text("w")),
      hello + Request(2, key, Text(""), Text("new")) + Request(8, key) + Request(7),
      hello + Request(4, key, U64(3)) + Request(5, keys) + Request(6, keys) + Request(12),
      hello + Request(11, U64(1), key, Text("v")) + Request(10, keys) + Request(17),
      hello + tcpstore::Terms(1) + Request(3, key) + tcpstore::Terms(1, 5) + Request(6, keys) +
          tcpstore::Terms(2) + Request(1, key, Text("v")) + tcpstore::Terms(1) + Request(17),
      hello + Request(14, key, Text("v")) + Request(16, key) + Request(15, key) + Request(15, key),
  };
}

bool Try(std::string_view bytes) {
  const Ended ended = Run(bytes, 65'536);
  const Ended in_pieces = Run(bytes, 3);
  Require(ended.accepted == in_pieces.accepted && (!ended.accepted || ended.out == in_pieces.out),
          "requests are the same however they are cut");
  return ended.accepted;
}

}  // namespace ddprun::fuzz
