// SPDX-License-Identifier: Apache-2.0
// One connection of a client of torch's TCPStore, as a pure function of its bytes and the store's
// answers. The protocol is that of protocol.h, which has no lengths of messages and no ids.
//
// A client waits for the reply to each request that has one, so at most one such request is under
// way. Those without a reply (SET, APPEND, MULTI_SET, QUEUE_PUSH) may be pipelined before it. While
// a WAIT or a BARRIER is under way only its CANCEL_WAIT is read. A request with terms has a reply
// whatever it is, and an error of the store does not end its connection. The replies to at most one
// request wait for the client to read them, where they are large.
//
// torch's client pops by a WAIT and a QUEUE_POP, and another one may take the value in between. The
// QUEUE_POP then waits for the next value, for a few seconds, where torch's own server answers that
// the queue is empty.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "rendezvous/tcpstore/protocol.h"
#include "rendezvous/tcpstore/request_reader.h"
#include "rendezvous/tcpstore/store_op.h"

namespace ddprun {

class TcpStoreSession {
 public:
  // For the store, in this order.
  struct Request {
    std::uint64_t id = 0;
    std::optional<StoreOp> op;  // absent: cancels the operation with this id
    bool alone = false;         // not to be coalesced with others'
  };

  // Its operations belong to `round` where they have no terms.
  explicit TcpStoreSession(RoundId round) : round_(round) {}

  // Bytes from the client.
  void Receive(std::string_view bytes);
  // The result of an operation. One that was cancelled has no effect.
  void Answer(std::uint64_t id, const StoreResult& result);

  std::vector<Request> TakeRequests() { return std::exchange(requests_, {}); }
  // Bytes to the client, in this order. Large values of the store are pieces of their own.
  std::vector<StoreValue> TakeOutput();
  // Whether replies that were taken are still to be read by the client: until they are, no request
  // is begun.
  void SetUnread(bool unread);
  // False: nothing more is to be read until operations were answered.
  bool wants_input() const;
  // The client has begun with the protocol's greeting.
  bool greeted() const { return greeted_; }
  // Bytes that an incomplete request may take, if these are more than kSmallRequestBytes. 0: there
  // is none.
  std::size_t room_needed() const;
  // What has yet to come of the next request, as far as that is known
  // (RequestReader::first_missing). 0: no request is read.
  std::size_t bytes_missing() const;
  // Not OK: the connection is to be closed. What the client sent was no request of this protocol
  // (INVALID_ARGUMENT, RESOURCE_EXHAUSTED), it speaks another version of ours
  // (FAILED_PRECONDITION), or the store rejected an operation; TCPStore's protocol cannot say why.
  const absl::Status& status() const { return status_; }

 private:
  struct Terms {
    RoundId round = kNoRound;
    std::chrono::milliseconds timeout{0};
  };
  struct UnderWay {  // the request that has a reply
    std::uint64_t id = 0;
    StoreOp op;               // without its keys
    std::string packed_keys;  // of a verb that waits, in case that it is asked again
    bool has_terms = false;
    bool counts = false;             // a BARRIER whose ADD has no answer yet
    bool done = false;               // a WAIT whose reply waits for silent operations before it
    std::vector<StoreValue> values;  // of a MULTI_GET that reads its keys one by one
    std::size_t bytes = 0;           // of these
    bool one_by_one = false;
  };

  bool can_be_cancelled() const {
    return !under_way_->has_terms && (under_way_->op.verb == StoreVerb::kWait ||
                                      under_way_->op.verb == StoreVerb::kWaitCount);
  }
  bool reads() const { return status_.ok() && !unread_ && !under_way_.has_value(); }
  void Parse();
  bool TakeOne();
  void Dispatch(tcpstore::ClientRequest request);
  void TakeTerms(const tcpstore::ClientRequest& request);
  void Ask(StoreOp op);
  void Send(StoreOp op);
  StoreOp UnderWayAgain() const;
  void CancelWait();
  void Reply(const StoreResult& result);
  void ReplyWithStatus(const StoreResult& result);
  void PutResult(StoreVerb verb, const StoreResult& result);
  void GoOnFromCount(const StoreResult& result);
  void StopWaitingIfSilent();
  void GoOnOneByOne(const StoreResult& result);
  void Fail(absl::Status status);
  void PutStatus(const absl::Status& status);
  void Put8(std::uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void Put64(std::int64_t value);
  void PutBytes(absl::string_view value);
  void PutValue(const StoreValue& value);
  void PutValues(const std::vector<StoreValue>& values);

  const RoundId round_;
  bool greeted_ = false;
  tcpstore::RequestReader in_;
  std::vector<StoreValue> pieces_;
  std::string out_;  // after them
  bool unread_ = false;
  std::vector<Request> requests_;
  std::uint64_t last_id_ = 0;
  absl::flat_hash_set<std::uint64_t> silent_;  // operations without a reply that are under way
  std::optional<Terms> terms_;                 // of the next request
  std::optional<UnderWay> under_way_;
  std::string told_of_;  // the packed keys of the WAIT whose end was the last reply
  absl::Status status_;
};

}  // namespace ddprun
