// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/tcpstore/session.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using tcpstore::Opcode;
using tcpstore::ReplyShape;

// A value of this size goes to its client without a copy.
constexpr std::size_t kPieceBytes = 4096;
// For a QUEUE_POP of a client that was told of a value which another one has popped since. The
// client's own timeout is unknown and ended with its WAIT.
constexpr std::chrono::seconds kNextValueTimeout{10};

ReplyShape ReplyOf(StoreVerb verb) { return tcpstore::FindKind(verb)->reply; }

// Keys in one piece, each after its length: a copy of hundreds, which is hardly ever used, then
// costs one piece of memory.
std::string PackKeys(const std::vector<std::string>& keys) {
  std::size_t size = 0;
  for (const std::string& key : keys) size += sizeof size + key.size();
  std::string packed;
  packed.reserve(size);
  for (const std::string& key : keys) {
    const std::size_t length = key.size();
    packed.append(reinterpret_cast<const char*>(&length), sizeof length).append(key);
  }
  return packed;
}

std::vector<std::string> UnpackKeys(std::string_view packed) {
  std::vector<std::string> keys;
  while (!packed.empty()) {
    std::size_t length = 0;
    std::memcpy(&length, packed.data(), sizeof length);
    keys.emplace_back(packed.substr(sizeof length, length));
    packed.remove_prefix(sizeof length + length);
  }
  return keys;
}

}  // namespace

void TcpStoreSession::Receive(std::string_view bytes) {
  if (!status_.ok()) return;
  in_.Append(bytes);
  Parse();
}

bool TcpStoreSession::wants_input() const {
  const bool blocked = unread_ || silent_.size() >= kTcpStoreOpsMax || under_way_.has_value();
  return status_.ok() && (!blocked || in_.held() < kSmallRequestBytes);
}

std::vector<StoreValue> TcpStoreSession::TakeOutput() {
  if (!out_.empty()) pieces_.emplace_back(std::exchange(out_, {}));
  return std::exchange(pieces_, {});
}

void TcpStoreSession::SetUnread(bool unread) {
  unread_ = unread;
  Parse();
}

std::size_t TcpStoreSession::room_needed() const {
  return reads() && in_.first_bytes() > kSmallRequestBytes ? in_.first_bytes_max() : 0;
}

std::size_t TcpStoreSession::bytes_missing() const { return reads() ? in_.first_missing() : 0; }

void TcpStoreSession::Parse() {
  while (status_.ok() && TakeOne()) {
  }
}

// True: a request was taken, and there may be another.
bool TcpStoreSession::TakeOne() {
  if (unread_ || silent_.size() >= kTcpStoreOpsMax) return false;
  const std::optional<Opcode> opcode = in_.Peek();
  if (!opcode) return false;
  if (under_way_.has_value() && !(can_be_cancelled() && *opcode == Opcode::kCancelWait))
    return false;
  if (!greeted_ && *opcode != Opcode::kValidate) {
    Fail(absl::InvalidArgumentError("it does not speak the protocol of torch's TCPStore"));
    return false;
  }
  std::optional<tcpstore::ClientRequest> request = in_.Next();
  if (!in_.status().ok()) Fail(in_.status());
  if (!request) return false;
  Dispatch(*std::move(request));
  return true;
}

void TcpStoreSession::Dispatch(tcpstore::ClientRequest request) {
  if (const std::optional<StoreVerb> verb = request.kind->verb) {
    return Ask({.verb = *verb,
                .round = round_,
                .keys = std::move(request.keys),
                .values = std::move(request.values),
                .number = request.numbers.empty() ? 0 : request.numbers[0]});
  }
  switch (request.kind->opcode) {
    case Opcode::kValidate:
      greeted_ = request.numbers[0] == tcpstore::kMagic;
      if (!greeted_) {
        Fail(absl::InvalidArgumentError(
            "a request of its TCPStore begins with a wrong magic number"));
      }
      return;
    case Opcode::kPing: {
      const auto nonce = static_cast<std::uint32_t>(request.numbers[0]);
      out_.append(reinterpret_cast<const char*>(&nonce), sizeof nonce);
      return;
    }
    case Opcode::kTerms:
      return TakeTerms(request);
    default:
      return CancelWait();
  }
}

void TcpStoreSession::TakeTerms(const tcpstore::ClientRequest& request) {
  terms_ = Terms{.round = RoundId{static_cast<std::uint64_t>(request.numbers[1])},
                 .timeout = std::clamp<std::chrono::milliseconds>(
                     std::chrono::milliseconds(request.numbers[2]), {}, kStoreTimeoutMax)};
  if (request.numbers[0] == kProtocolVersion) return;
  Fail(absl::FailedPreconditionError(absl::StrCat(
      "the worker speaks protocol ", request.numbers[0], ", its agent speaks protocol ",
      kProtocolVersion, "; start the program with the ddprun that it was built with")));
}

void TcpStoreSession::Ask(StoreOp op) {
  const std::optional<Terms> terms = std::exchange(terms_, std::nullopt);
  const std::string told_of = std::exchange(told_of_, {});
  if (!terms && ReplyOf(op.verb) == ReplyShape::kNone) {
    requests_.push_back({++last_id_, std::move(op), /*alone=*/true});
    silent_.insert(last_id_);
    return;
  }
  under_way_ = UnderWay{.has_terms = terms.has_value()};
  if (terms) {
    op.round = terms->round;
    if (MayWait(op.verb)) op.timeout = terms->timeout;
  } else if (op.verb == StoreVerb::kWait || op.verb == StoreVerb::kWaitCount) {
    op.timeout = kStoreTimeoutMax;  // the client has one of its own, and cancels
  } else if (op.verb == StoreVerb::kQueuePop && told_of == PackKeys(op.keys)) {
    op.timeout = kNextValueTimeout;
  }
  under_way_->counts = op.verb == StoreVerb::kWaitCount;
  under_way_->op = {.verb = op.verb, .round = op.round, .number = op.number, .timeout = op.timeout};
  if (under_way_->counts || (MayWait(op.verb) && !terms))
    under_way_->packed_keys = PackKeys(op.keys);
  if (under_way_->counts)
    op = {.verb = StoreVerb::kAdd, .round = op.round, .keys = std::move(op.keys), .number = 1};
  Send(std::move(op));
}

// A WAIT for one key may be one for a queue, of which each value ends one WAIT. What follows silent
// operations must come after them; of a WAIT, whose keys can only have become more, the reply.
void TcpStoreSession::Send(StoreOp op) {
  const bool is_wait = op.verb == StoreVerb::kWait && !under_way_->has_terms;
  const bool alone = is_wait ? op.keys.size() == 1 : !silent_.empty();
  under_way_->id = ++last_id_;
  requests_.push_back({last_id_, std::move(op), alone});
}

StoreOp TcpStoreSession::UnderWayAgain() const {
  StoreOp op = under_way_->op;
  op.keys = UnpackKeys(under_way_->packed_keys);
  return op;
}

void TcpStoreSession::StopWaitingIfSilent() {
  if (!under_way_.has_value() || !under_way_->done || !silent_.empty()) return;
  told_of_ = std::move(under_way_->packed_keys);
  under_way_.reset();
  Put8(tcpstore::kStopWaiting);
}

// Both a client whose WAIT is under way and one whose WAIT was answered meanwhile expect this.
void TcpStoreSession::CancelWait() {
  if (under_way_.has_value()) {
    // Who came to a barrier has come, also if it leaves at once.
    if (!under_way_->counts) requests_.push_back({under_way_->id, std::nullopt, false});
    under_way_.reset();
  }
  Put8(tcpstore::kWaitCancelled);
}

void TcpStoreSession::Answer(std::uint64_t id, const StoreResult& result) {
  if (!status_.ok()) return;
  if (silent_.erase(id) > 0) {
    status_ = result.status;
    if (status_.ok()) StopWaitingIfSilent();
  } else if (under_way_.has_value() && under_way_->id == id) {
    if (under_way_->counts) {
      GoOnFromCount(result);
    } else if (under_way_->has_terms) {
      ReplyWithStatus(result);
    } else {
      Reply(result);
    }
  }
  Parse();
}

// The answer to a BARRIER's ADD.
void TcpStoreSession::GoOnFromCount(const StoreResult& result) {
  under_way_->counts = false;
  if (result.status.ok() && result.number < under_way_->op.number) return Send(UnderWayAgain());
  under_way_->has_terms ? ReplyWithStatus(result) : Reply(result);
}

void TcpStoreSession::ReplyWithStatus(const StoreResult& result) {
  PutStatus(result.status);
  if (result.status.ok()) PutResult(under_way_->op.verb, result);
  under_way_.reset();
}

void TcpStoreSession::Reply(const StoreResult& result) {
  const StoreVerb verb = under_way_->op.verb;
  const absl::Status& status = result.status;
  if (verb == StoreVerb::kMultiGet) return GoOnOneByOne(result);
  if (can_be_cancelled() && absl::IsDeadlineExceeded(status)) return Send(UnderWayAgain());
  if (verb == StoreVerb::kWait && status.ok()) {
    under_way_->done = true;
    return StopWaitingIfSilent();
  }
  under_way_.reset();
  if (verb == StoreVerb::kGet && absl::IsDeadlineExceeded(status)) return PutBytes("");
  // The length before; a client asks only whether it is 0.
  if (verb == StoreVerb::kQueuePop &&
      (absl::IsNotFound(status) || absl::IsDeadlineExceeded(status)))
    return Put64(0);
  if (!status.ok()) {
    status_ = status;
    return;
  }
  PutResult(verb, result);
}

void TcpStoreSession::PutResult(StoreVerb verb, const StoreResult& result) {
  switch (ReplyOf(verb)) {
    case ReplyShape::kNone:
      return;
    case ReplyShape::kByte:
      if (verb != StoreVerb::kCheck) return Put8(tcpstore::kStopWaiting);
      return Put8(result.number == 1 ? tcpstore::kReady : tcpstore::kNotReady);
    case ReplyShape::kNumber:
      return Put64(result.number);
    case ReplyShape::kPopped:
      Put64(1);
      return PutValue(result.values[0]);
    case ReplyShape::kValues:
      return PutValues(result.values);
    case ReplyShape::kKeys:
      Put64(static_cast<std::int64_t>(result.keys.size()));
      for (const std::string& key : result.keys) PutBytes(key);
      return;
  }
}

// A MULTI_GET has an empty value for each key that does not exist, the store's MULTI_GET none at
// all. torch's client waits for the keys first, so this is rare.
void TcpStoreSession::GoOnOneByOne(const StoreResult& result) {
  UnderWay& under_way = *under_way_;
  const bool missing = absl::IsDeadlineExceeded(result.status);
  if (!result.status.ok() && !missing) {
    status_ = result.status;
    return;
  }
  if (under_way.one_by_one) {
    under_way.values.push_back(missing ? StoreValue() : result.values[0]);
    under_way.bytes += under_way.values.back().size();
    if (under_way.bytes > kMessageBytesMax) {
      status_ = absl::ResourceExhaustedError(
          absl::StrCat("the values of the ", under_way.op.keys.size(),
                       " keys that it asks for at once are more than ", kMessageBytesMax,
                       " bytes; ask for fewer at a time"));
      return;
    }
  } else if (!missing) {
    PutResult(StoreVerb::kMultiGet, result);
    under_way_.reset();
    return;
  }
  if (!std::exchange(under_way.one_by_one, true))
    under_way.op.keys = UnpackKeys(under_way.packed_keys);
  const std::vector<std::string>& keys = under_way.op.keys;
  if (under_way.values.size() < keys.size()) {
    return Send(
        {.verb = StoreVerb::kGet, .round = round_, .keys = {keys[under_way.values.size()]}});
  }
  PutValues(under_way.values);
  under_way_.reset();
}

// A client whose request has terms is told why.
void TcpStoreSession::Fail(absl::Status status) {
  if (terms_) PutStatus(status);
  status_ = std::move(status);
}

void TcpStoreSession::PutStatus(const absl::Status& status) {
  Put8(static_cast<std::uint8_t>(status.code()));
  if (!status.ok()) PutBytes(status.message());
}

void TcpStoreSession::Put64(std::int64_t value) {
  out_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void TcpStoreSession::PutBytes(absl::string_view value) {
  Put64(static_cast<std::int64_t>(value.size()));
  out_.append(value.data(), value.size());
}

void TcpStoreSession::PutValues(const std::vector<StoreValue>& values) {
  std::size_t size = out_.size();
  for (const StoreValue& value : values)
    size += sizeof(std::int64_t) + (value.size() < kPieceBytes ? value.size() : 0);
  out_.reserve(size);
  for (const StoreValue& value : values) PutValue(value);
}

void TcpStoreSession::PutValue(const StoreValue& value) {
  if (value.size() < kPieceBytes) return PutBytes(value.text());
  Put64(static_cast<std::int64_t>(value.size()));
  pieces_.emplace_back(std::exchange(out_, {}));
  pieces_.push_back(value);
}

}  // namespace ddprun
