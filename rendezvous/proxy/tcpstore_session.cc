// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/tcpstore_session.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

enum class TcpStoreSession::Opcode : std::uint8_t {
  kValidate = 0,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kNumKeys,
  kDelete,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLen,
  kListKeys,
};

namespace {

// Numbers are copied as they are.
static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kMagic = 0x3C85F7CE;
constexpr std::uint8_t kStopWaiting = 0;
constexpr std::uint8_t kWaitCancelled = 1;
constexpr std::uint8_t kReady = 0;
constexpr std::uint8_t kNotReady = 1;
// Unparsed input up to which more is read while operations are under way.
constexpr std::size_t kReadAhead = 64 * 1024;

bool IsSilent(StoreVerb verb) {
  return verb == StoreVerb::kSet || verb == StoreVerb::kAppend || verb == StoreVerb::kMultiSet ||
         verb == StoreVerb::kQueuePush;
}

}  // namespace

// Reads the fields of a request. After a field that is not there yet, or is invalid, the others are
// empty.
class TcpStoreSession::Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Number() {
    T value{};
    const std::string_view bytes = Take(sizeof value);
    if (bytes.size() == sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string Key() { return Bytes("key", kKeyBytesMax); }
  std::string Value() { return Bytes("value", kValueBytesMax); }
  std::size_t Count() {
    const auto count = Number<std::uint64_t>();
    if (count <= kTcpStoreKeysMax) return static_cast<std::size_t>(count);
    Fail(absl::StrCat("names ", count, " keys; at most ", kTcpStoreKeysMax, " are allowed"));
    return 0;
  }
  std::vector<std::string> Keys() {
    std::vector<std::string> keys;
    for (std::size_t left = Count(); left > 0 && whole(); --left) keys.push_back(Key());
    return keys;
  }
  void Fail(const std::string& what) {
    whole_ = false;
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat("a request of its TCPStore ", what));
  }

  bool whole() const { return whole_; }  // all fields were there, and valid
  const absl::Status& status() const { return status_; }
  std::size_t used() const { return used_; }

 private:
  std::string_view Take(std::uint64_t size) {
    if (!whole_ || bytes_.size() - used_ < size) {
      whole_ = false;
      return {};
    }
    const std::string_view taken = bytes_.substr(used_, static_cast<std::size_t>(size));
    used_ += taken.size();
    return taken;
  }
  std::string Bytes(const char* what, std::size_t max) {
    const auto size = Number<std::uint64_t>();
    if (size > max) {
      Fail(absl::StrCat("has a ", what, " of ", size, " bytes; at most ", max, " are allowed"));
      return "";
    }
    return std::string(Take(size));
  }

  const std::string_view bytes_;
  std::size_t used_ = 0;
  bool whole_ = true;
  absl::Status status_;
};

void TcpStoreSession::Receive(std::string_view bytes) {
  if (!status_.ok()) return;
  in_ += bytes;
  Parse();
}

bool TcpStoreSession::wants_input() const {
  const bool blocked = silent_.size() >= kTcpStoreOpsMax || under_way_.has_value();
  return status_.ok() && (!blocked || in_.size() - begin_ < kReadAhead);
}

void TcpStoreSession::Parse() {
  while (status_.ok() && ParseOne()) {
  }
  in_.erase(0, begin_);
  begin_ = 0;
  if (in_.empty() && in_.capacity() > kReadAhead) in_.shrink_to_fit();
}

// True: a request was taken, and there may be another.
bool TcpStoreSession::ParseOne() {
  if (begin_ == in_.size() || silent_.size() >= kTcpStoreOpsMax) return false;
  const auto opcode = static_cast<Opcode>(in_[begin_]);
  if (under_way_.has_value() &&
      (under_way_->opcode != Opcode::kWait || opcode != Opcode::kCancelWait)) {
    return false;
  }
  if (!greeted_ && opcode != Opcode::kValidate) {
    status_ = absl::InvalidArgumentError("it does not speak the protocol of torch's TCPStore");
    return false;
  }
  Cursor cursor(std::string_view(in_).substr(begin_ + 1));
  Dispatch(opcode, cursor);
  status_.Update(cursor.status());
  if (!cursor.whole()) {
    if (status_.ok() && in_.size() - begin_ > kMessageBytesMax) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("a request of its TCPStore has more than ", kMessageBytesMax, " bytes"));
    }
    return false;
  }
  if (opcode == Opcode::kWait || opcode == Opcode::kMultiGet)
    under_way_->fields = in_.substr(begin_ + 1, cursor.used());
  begin_ += 1 + cursor.used();
  return true;
}

// Of those that are operations of the store.
std::optional<StoreVerb> TcpStoreSession::VerbOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kSet:
      return StoreVerb::kSet;
    case Opcode::kCompareSet:
      return StoreVerb::kCompareSet;
    case Opcode::kGet:
      return StoreVerb::kGet;
    case Opcode::kAdd:
      return StoreVerb::kAdd;
    case Opcode::kCheck:
      return StoreVerb::kCheck;
    case Opcode::kWait:
      return StoreVerb::kWait;
    case Opcode::kNumKeys:
      return StoreVerb::kNumKeys;
    case Opcode::kDelete:
      return StoreVerb::kDelete;
    case Opcode::kAppend:
      return StoreVerb::kAppend;
    case Opcode::kMultiGet:
      return StoreVerb::kMultiGet;
    case Opcode::kMultiSet:
      return StoreVerb::kMultiSet;
    case Opcode::kQueuePush:
      return StoreVerb::kQueuePush;
    case Opcode::kQueuePop:
      return StoreVerb::kQueuePop;
    case Opcode::kQueueLen:
      return StoreVerb::kQueueLen;
    case Opcode::kListKeys:
      return StoreVerb::kListKeys;
    case Opcode::kValidate:
    case Opcode::kCancelWait:
    case Opcode::kPing:
      break;
  }
  return std::nullopt;
}

void TcpStoreSession::Dispatch(Opcode opcode, Cursor& cursor) {
  if (const auto verb = VerbOf(opcode)) {
    StoreOp op = OperationOf(*verb, cursor);
    if (cursor.whole()) Ask(opcode, std::move(op));
  } else if (opcode == Opcode::kValidate) {
    if (cursor.Number<std::uint32_t>() != kMagic && cursor.whole())
      cursor.Fail("begins with a wrong magic number");
    greeted_ = cursor.whole();
  } else if (opcode == Opcode::kPing) {
    const auto nonce = cursor.Number<std::uint32_t>();
    if (cursor.whole()) out_.append(reinterpret_cast<const char*>(&nonce), sizeof nonce);
  } else if (opcode == Opcode::kCancelWait) {
    CancelWait();
  } else {
    cursor.Fail(absl::StrCat("has the unknown opcode ", static_cast<int>(opcode)));
  }
}

// With the fields that the verb has, in the order of the protocol.
StoreOp TcpStoreSession::OperationOf(StoreVerb verb, Cursor& cursor) const {
  StoreOp op{.verb = verb, .round = round_};
  switch (verb) {
    case StoreVerb::kNumKeys:
    case StoreVerb::kListKeys:
      break;
    case StoreVerb::kCheck:
    case StoreVerb::kWait:
    case StoreVerb::kMultiGet:
      op.keys = cursor.Keys();
      break;
    case StoreVerb::kMultiSet:
      for (std::size_t left = cursor.Count(); left > 0 && cursor.whole(); --left) {
        op.keys.push_back(cursor.Key());
        op.values.push_back(cursor.Value());
      }
      break;
    default:
      op.keys.push_back(cursor.Key());
      if (verb == StoreVerb::kAdd) op.number = cursor.Number<std::int64_t>();
      if (IsSilent(verb) || verb == StoreVerb::kCompareSet) op.values.push_back(cursor.Value());
      if (verb == StoreVerb::kCompareSet) op.values.push_back(cursor.Value());
  }
  return op;
}

void TcpStoreSession::Ask(Opcode opcode, StoreOp op) {
  if (IsSilent(op.verb)) {
    requests_.push_back({++last_id_, std::move(op), /*alone=*/true});
    silent_.insert(last_id_);
    return;
  }
  under_way_ = UnderWay{.opcode = opcode};
  Send(std::move(op));
}

// A WAIT for one key may be one for a queue, of which each value ends one WAIT. What follows silent
// operations must come after them; of a WAIT, whose keys can only have become more, the reply.
void TcpStoreSession::Send(StoreOp op) {
  const bool is_wait = op.verb == StoreVerb::kWait;
  const bool alone = is_wait ? op.keys.size() == 1 : !silent_.empty();
  if (is_wait) op.timeout = kStoreTimeoutMax;  // the client has one of its own, and cancels
  under_way_->id = ++last_id_;
  requests_.push_back({last_id_, std::move(op), alone});
}

void TcpStoreSession::StopWaitingIfSilent() {
  if (!under_way_.has_value() || !under_way_->done || !silent_.empty()) return;
  under_way_.reset();
  Put8(kStopWaiting);
}

// Both a client whose WAIT is under way and one whose WAIT was answered meanwhile expect this.
void TcpStoreSession::CancelWait() {
  if (under_way_.has_value()) {
    requests_.push_back({under_way_->id, std::nullopt, false});
    under_way_.reset();
  }
  Put8(kWaitCancelled);
}

void TcpStoreSession::Answer(std::uint64_t id, const StoreResult& result) {
  if (!status_.ok()) return;
  if (silent_.erase(id) > 0) {
    status_ = result.status;
    if (status_.ok()) StopWaitingIfSilent();
  } else if (under_way_.has_value() && under_way_->id == id) {
    Reply(result);
  }
  Parse();
}

void TcpStoreSession::Reply(const StoreResult& result) {
  const Opcode opcode = under_way_->opcode;
  if (opcode == Opcode::kMultiGet) return GoOnOneByOne(result);
  const absl::Status& status = result.status;
  if (opcode == Opcode::kWait && absl::IsDeadlineExceeded(status)) {
    return Send(
        {.verb = StoreVerb::kWait, .round = round_, .keys = Cursor(under_way_->fields).Keys()});
  }
  if (opcode == Opcode::kWait && status.ok()) {
    under_way_->done = true;
    return StopWaitingIfSilent();
  }
  const bool missing = (opcode == Opcode::kGet && absl::IsDeadlineExceeded(status)) ||
                       (opcode == Opcode::kQueuePop && absl::IsNotFound(status));
  under_way_.reset();
  if (!status.ok() && !missing) {
    status_ = status;
    return;
  }
  switch (opcode) {
    case Opcode::kGet:
      return PutBytes(missing ? "" : result.values[0]);
    case Opcode::kCompareSet:
      return PutBytes(result.values[0]);
    case Opcode::kCheck:
      return Put8(result.number == 1 ? kReady : kNotReady);
    case Opcode::kQueuePop:
      // The length before; a client asks only whether it is 0.
      Put64(missing ? 0 : 1);
      if (!missing) PutBytes(result.values[0]);
      return;
    case Opcode::kListKeys:
      Put64(static_cast<std::int64_t>(result.keys.size()));
      for (const std::string& key : result.keys) PutBytes(key);
      return;
    default:
      return Put64(result.number);
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
  if (!under_way.keys.empty()) {
    under_way.values.push_back(missing ? "" : result.values[0]);
  } else if (missing) {
    under_way.keys = Cursor(under_way.fields).Keys();
  }
  if (under_way.values.size() < under_way.keys.size()) {
    return Send({.verb = StoreVerb::kGet,
                 .round = round_,
                 .keys = {under_way.keys[under_way.values.size()]}});
  }
  for (const std::string& value : under_way.keys.empty() ? result.values : under_way.values)
    PutBytes(value);
  under_way_.reset();
}

void TcpStoreSession::Put64(std::int64_t value) {
  out_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void TcpStoreSession::PutBytes(const std::string& value) {
  Put64(static_cast<std::int64_t>(value.size()));
  out_ += value;
}

}  // namespace ddprun
