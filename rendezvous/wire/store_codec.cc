// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/store_codec.h"

#include <cstring>

#include "google/protobuf/io/coded_stream.h"
#include "proto/ddprun.pb.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/scalars.h"

namespace ddprun {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using v1::StoreReplies;
using v1::StoreRequests;

constexpr std::uint32_t kVarint = 0;
constexpr std::uint32_t kLengthDelimited = 2;

constexpr std::uint32_t TagOf(int field, std::uint32_t wire_type) {
  return static_cast<std::uint32_t>(field) << 3 | wire_type;
}
constexpr std::uint32_t Number(int field) { return TagOf(field, kVarint); }
constexpr std::uint32_t Bytes(int field) { return TagOf(field, kLengthDelimited); }

// All fields here have numbers below 16: their tags take one byte.
std::size_t SizeOfNumber(std::uint64_t number) {
  return number == 0 ? 0 : 1 + CodedOutputStream::VarintSize64(number);
}
std::size_t SizeOfBytes(std::size_t size) {
  return 1 + CodedOutputStream::VarintSize64(size) + size;
}

std::uint8_t* PutNumber(std::uint32_t tag, std::uint64_t number, std::uint8_t* to) {
  if (number == 0) return to;
  return CodedOutputStream::WriteVarint64ToArray(number,
                                                 CodedOutputStream::WriteTagToArray(tag, to));
}
std::uint8_t* PutHead(std::uint32_t tag, std::size_t size, std::uint8_t* to) {
  return CodedOutputStream::WriteVarint64ToArray(size, CodedOutputStream::WriteTagToArray(tag, to));
}
std::uint8_t* PutBytes(std::uint32_t tag, const std::string& bytes, std::uint8_t* to) {
  to = PutHead(tag, bytes.size(), to);
  std::memcpy(to, bytes.data(), bytes.size());
  return to + bytes.size();
}

std::size_t SizeOfAll(const std::vector<std::string>& all) {
  std::size_t size = 0;
  for (const std::string& one : all) size += SizeOfBytes(one.size());
  return size;
}
std::uint8_t* PutAll(std::uint32_t tag, const std::vector<std::string>& all, std::uint8_t* to) {
  for (const std::string& one : all) to = PutBytes(tag, one, to);
  return to;
}

// Room for a frame, and where its message begins.
std::uint8_t* BeginFrame(std::size_t size, std::string* frame) {
  frame->resize(kFrameLengthBytes + size);
  return CodedOutputStream::WriteLittleEndian32ToArray(
      static_cast<std::uint32_t>(size), reinterpret_cast<std::uint8_t*>(frame->data()));
}

// Reads the fields of a message: `read(tag)` reads one, and says whether it could.
template <typename Read>
bool ReadFields(CodedInputStream& in, Read read) {
  while (true) {
    const std::uint32_t tag = in.ReadTag();
    if (tag == 0) return in.ConsumedEntireMessage();
    if (!read(tag)) return false;
  }
}

template <typename Read>
bool ReadMessage(CodedInputStream& in, Read read) {
  int size = 0;
  // A limit beyond the outer one would be cut to it without a word.
  if (!in.ReadVarintSizeAsInt(&size) || size > in.BytesUntilLimit()) return false;
  const CodedInputStream::Limit limit = in.PushLimit(size);
  const bool done = ReadFields(in, read);
  in.PopLimit(limit);
  return done;
}

bool ReadBytes(CodedInputStream& in, std::string* bytes) {
  int size = 0;
  return in.ReadVarintSizeAsInt(&size) && in.ReadString(bytes, size);
}

bool ReadOp(CodedInputStream& in, StoreOp* op) {
  return ReadMessage(in, [&](std::uint32_t tag) {
    std::uint64_t number = 0;
    switch (tag) {
      case Number(v1::StoreOp::kVerbFieldNumber):
        if (!in.ReadVarint64(&number) || number == 0 || number > v1::StoreOp::Verb_MAX)
          return false;
        op->verb = static_cast<StoreVerb>(number);
        return true;
      case Number(v1::StoreOp::kRoundFieldNumber):
        if (!in.ReadVarint64(&number)) return false;
        op->round = RoundId{number};
        return true;
      case Bytes(v1::StoreOp::kKeysFieldNumber):
        return ReadBytes(in, &op->keys.emplace_back());
      case Bytes(v1::StoreOp::kValuesFieldNumber):
        return ReadBytes(in, &op->values.emplace_back());
      case Number(v1::StoreOp::kNumberFieldNumber):
        if (!in.ReadVarint64(&number)) return false;
        op->number = static_cast<std::int64_t>(number);
        return true;
      case Bytes(v1::StoreOp::kTimeoutFieldNumber): {
        google::protobuf::Duration timeout;
        if (!ReadMessage(in, [&](std::uint32_t of_timeout) {
              if (!in.ReadVarint64(&number)) return false;
              if (of_timeout == Number(google::protobuf::Duration::kSecondsFieldNumber)) {
                timeout.set_seconds(static_cast<std::int64_t>(number));
                return true;
              }
              timeout.set_nanos(static_cast<std::int32_t>(number));
              return of_timeout == Number(google::protobuf::Duration::kNanosFieldNumber);
            })) {
          return false;
        }
        op->timeout = ToMilliseconds(timeout);
        return true;
      }
      default:
        return false;
    }
  });
}

bool ReadResult(CodedInputStream& in, StoreReply* reply) {
  return ReadMessage(in, [&](std::uint32_t tag) {
    std::uint64_t number = 0;
    switch (tag) {
      case Number(v1::StoreReply::kIdFieldNumber):
        return in.ReadVarint64(&reply->id);
      case Bytes(v1::StoreReply::kValuesFieldNumber):
        return ReadBytes(in, &reply->result.values.emplace_back());
      case Number(v1::StoreReply::kNumberFieldNumber):
        if (!in.ReadVarint64(&number)) return false;
        reply->result.number = static_cast<std::int64_t>(number);
        return true;
      case Bytes(v1::StoreReply::kKeysFieldNumber):
        return ReadBytes(in, &reply->result.keys.emplace_back());
      default:
        return false;
    }
  });
}

}  // namespace

std::string ToRequestFrame(std::uint64_t id, RoundId round, const StoreOp& op) {
  const std::int64_t milliseconds = op.timeout.count();
  const auto seconds = static_cast<std::uint64_t>(milliseconds / 1000);
  const auto nanos = static_cast<std::uint64_t>(milliseconds % 1000 * 1'000'000);
  const auto number = static_cast<std::uint64_t>(op.number);
  const std::size_t timeout_size = SizeOfNumber(seconds) + SizeOfNumber(nanos);
  const std::size_t op_size = SizeOfNumber(static_cast<std::uint64_t>(op.verb)) +
                              SizeOfNumber(ToNumber(round)) + SizeOfAll(op.keys) +
                              SizeOfAll(op.values) + SizeOfNumber(number) +
                              (milliseconds == 0 ? 0 : SizeOfBytes(timeout_size));
  const std::size_t request_size = SizeOfNumber(id) + SizeOfBytes(op_size);
  std::string frame;
  std::uint8_t* to = BeginFrame(SizeOfBytes(request_size), &frame);
  to = PutHead(Bytes(StoreRequests::kRequestsFieldNumber), request_size, to);
  to = PutNumber(Number(v1::StoreRequest::kIdFieldNumber), id, to);
  to = PutHead(Bytes(v1::StoreRequest::kOpFieldNumber), op_size, to);
  to = PutNumber(Number(v1::StoreOp::kVerbFieldNumber), static_cast<std::uint64_t>(op.verb), to);
  to = PutNumber(Number(v1::StoreOp::kRoundFieldNumber), ToNumber(round), to);
  to = PutAll(Bytes(v1::StoreOp::kKeysFieldNumber), op.keys, to);
  to = PutAll(Bytes(v1::StoreOp::kValuesFieldNumber), op.values, to);
  to = PutNumber(Number(v1::StoreOp::kNumberFieldNumber), number, to);
  if (milliseconds != 0) {
    to = PutHead(Bytes(v1::StoreOp::kTimeoutFieldNumber), timeout_size, to);
    to = PutNumber(Number(google::protobuf::Duration::kSecondsFieldNumber), seconds, to);
    PutNumber(Number(google::protobuf::Duration::kNanosFieldNumber), nanos, to);
  }
  return frame;
}

std::vector<std::string> ToReplyFrames(const StoreResult& result,
                                       const std::vector<std::uint64_t>& ids) {
  const bool failed = !result.status.ok();
  const auto code = static_cast<std::uint64_t>(result.status.code());
  const std::string text = failed ? ToUtf8(std::string(result.status.message())) : std::string();
  const auto number = static_cast<std::uint64_t>(result.number);
  const std::size_t rest = SizeOfNumber(code) + (text.empty() ? 0 : SizeOfBytes(text.size())) +
                           SizeOfAll(result.values) + SizeOfNumber(number) + SizeOfAll(result.keys);
  std::vector<std::string> frames;
  frames.reserve(ids.size());
  for (const std::uint64_t id : ids) {
    const std::size_t size = SizeOfNumber(id) + rest;
    std::uint8_t* to = BeginFrame(SizeOfBytes(size), &frames.emplace_back());
    to = PutHead(Bytes(StoreReplies::kRepliesFieldNumber), size, to);
    to = PutNumber(Number(v1::StoreReply::kIdFieldNumber), id, to);
    to = PutNumber(Number(v1::StoreReply::kCodeFieldNumber), code, to);
    if (!text.empty()) to = PutBytes(Bytes(v1::StoreReply::kMessageFieldNumber), text, to);
    to = PutAll(Bytes(v1::StoreReply::kValuesFieldNumber), result.values, to);
    to = PutNumber(Number(v1::StoreReply::kNumberFieldNumber), number, to);
    PutAll(Bytes(v1::StoreReply::kKeysFieldNumber), result.keys, to);
  }
  return frames;
}

bool ReadRequests(std::string_view message, std::vector<StoreRequest>* requests) {
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(message.data()),
                      static_cast<int>(message.size()));
  in.PushLimit(static_cast<int>(message.size()));
  return ReadFields(in, [&](std::uint32_t tag) {
    if (tag != Bytes(StoreRequests::kRequestsFieldNumber)) return false;
    StoreRequest& request = requests->emplace_back();
    bool has_verb = false;
    const bool read = ReadMessage(in, [&](std::uint32_t of_request) {
      if (of_request == Number(v1::StoreRequest::kIdFieldNumber)) {
        return in.ReadVarint64(&request.id);
      }
      if (of_request != Bytes(v1::StoreRequest::kOpFieldNumber) || request.op) return false;
      request.op.emplace().verb = StoreVerb{};
      if (!ReadOp(in, &*request.op)) return false;
      has_verb = request.op->verb != StoreVerb{};
      return true;
    });
    return read && has_verb;
  });
}

bool ReadReplies(std::string_view message, std::vector<StoreReply>* replies) {
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(message.data()),
                      static_cast<int>(message.size()));
  in.PushLimit(static_cast<int>(message.size()));
  return ReadFields(in, [&](std::uint32_t tag) {
    return tag == Bytes(StoreReplies::kRepliesFieldNumber) &&
           ReadResult(in, &replies->emplace_back());
  });
}

}  // namespace ddprun
