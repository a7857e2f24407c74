// SPDX-License-Identifier: Apache-2.0
// One connection of a client of torch's TCPStore, as a pure function of its bytes and the store's
// replies. The protocol is that of torch 2.11 (TCPStoreBackend.hpp, TCPStoreLibUvBackend.cpp):
// little-endian, an opcode of one byte and its fields, no lengths of messages, no ids. A key or a
// value is a u64 length and that many bytes.
//
// A client waits for the reply to each request that has one, so at most one such request is under
// way; those without a reply (SET, APPEND, MULTI_SET, QUEUE_PUSH) may be pipelined before it. While
// a WAIT is under way only its CANCEL_WAIT is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "rendezvous/values/store_types.h"

namespace ddprun {

class TcpStoreSession {
 public:
  // For the store, in this order.
  struct Request {
    std::uint64_t id = 0;
    std::optional<StoreOp> op;  // absent: cancels the operation with this id
    bool alone = false;         // not to be coalesced with others'
  };

  // Its operations belong to `round`.
  explicit TcpStoreSession(RoundId round) : round_(round) {}

  // Bytes from the client.
  void Receive(std::string_view bytes);
  // The result of an operation. One that was cancelled has no effect.
  void Answer(std::uint64_t id, const StoreResult& result);

  std::vector<Request> TakeRequests() { return std::exchange(requests_, {}); }
  // Bytes to the client.
  std::string TakeOutput() { return std::exchange(out_, {}); }
  // False: nothing more is to be read until operations were answered.
  bool wants_input() const;
  // Not OK: the connection is to be closed. What the client sent was no request of this protocol
  // (INVALID_ARGUMENT), or the store rejected an operation; the protocol cannot say why.
  const absl::Status& status() const { return status_; }

 private:
  enum class Opcode : std::uint8_t;
  class Cursor;
  struct UnderWay {  // the request that has a reply
    std::uint64_t id = 0;
    Opcode opcode{};
    std::string fields;  // of a WAIT or MULTI_GET, as they came, in case that it is asked again
    bool done = false;   // a WAIT whose reply waits for silent operations before it
    // Of a MULTI_GET that reads its keys one by one.
    std::vector<std::string> keys;
    std::vector<std::string> values;
  };

  void Parse();
  bool ParseOne();
  void Dispatch(Opcode opcode, Cursor& cursor);
  static std::optional<StoreVerb> VerbOf(Opcode opcode);
  StoreOp OperationOf(StoreVerb verb, Cursor& cursor) const;
  void Ask(Opcode opcode, StoreOp op);
  void Send(StoreOp op);
  void CancelWait();
  void Reply(const StoreResult& result);
  void StopWaitingIfSilent();
  void GoOnOneByOne(const StoreResult& result);
  void Put8(std::uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void Put64(std::int64_t value);
  void PutBytes(const std::string& value);

  const RoundId round_;
  bool greeted_ = false;
  std::string in_;
  std::size_t begin_ = 0;  // what of it is not parsed yet
  std::string out_;
  std::vector<Request> requests_;
  std::uint64_t last_id_ = 0;
  absl::flat_hash_set<std::uint64_t> silent_;  // operations without a reply that are under way
  std::optional<UnderWay> under_way_;
  absl::Status status_;
};

}  // namespace ddprun
