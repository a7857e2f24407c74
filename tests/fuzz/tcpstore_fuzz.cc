// SPDX-License-Identifier: Apache-2.0
// What a client of torch's TCPStore writes to an agent's port.
#include <optional>

#include "rendezvous/base/limits.h"
#include "rendezvous/proxy/tcpstore_session.h"
#include "rendezvous/store/kv_store.h"
#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {
namespace {

std::string U64(std::uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string Text(const std::string& text) { return U64(text.size()) + text; }
std::string Opcode(int opcode) { return std::string(1, static_cast<char>(opcode)); }

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
    ended.out += session.TakeOutput();
  }
  ended.accepted = session.status().ok();
  return ended;
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string hello("\x00\xce\xf7\x85\x3c\x0d\x01\x02\x03\x04", 10);
  const std::string key = Text("/key");
  const std::string keys = U64(2) + key + Text("/other");
  return {
      hello + Opcode(1) + key + Text("v") + Opcode(3) + key + Opcode(9) + key + Text("w"),
      hello + Opcode(2) + key + Text("") + Text("new") + Opcode(8) + key + Opcode(7),
      hello + Opcode(4) + key + U64(3) + Opcode(5) + keys + Opcode(6) + keys + Opcode(12),
      hello + Opcode(11) + U64(1) + key + Text("v") + Opcode(10) + keys + Opcode(17),
      hello + Opcode(14) + key + Text("v") + Opcode(16) + key + Opcode(15) + key + Opcode(15) + key,
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
