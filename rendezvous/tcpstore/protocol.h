// SPDX-License-Identifier: Apache-2.0
// The requests of torch's TCPStore, as TCPStoreBackend.hpp numbers them and TCPStore.cpp writes
// them, and one of our own. A request is an opcode, one byte, and its fields; numbers are in
// little-endian order, a key or a value is a u64 length and that many bytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rendezvous/tcpstore/store_op.h"

namespace ddprun::tcpstore {

// Numbers are copied as they are.
static_assert(std::endian::native == std::endian::little);

enum class Opcode : std::uint8_t {
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
  kBarrier,  // torch 2.15
  // Ours, and far from those that torch may add: the terms of the request that follows, which are
  // the version of ddprun's protocol, the round that it belongs to, and its timeout in
  // milliseconds. Each such request has a reply, which begins with a status: the code of absl as
  // one byte, and if that is not 0 the message and nothing else.
  kTerms = 0x80,
};

// What the store's result is written as.
enum class ReplyShape {
  kNone,    // without terms there is no reply
  kByte,    // of CHECK, WAIT and BARRIER, below
  kNumber,  // i64
  kValues,  // one for each key
  kPopped,  // i64, not 0, and a value
  kKeys,    // u64, and as many keys
};

struct RequestKind {
  Opcode opcode{};
  // k: key, v: value, n: i64, i: u32; after *, a u64, the rest comes as many times.
  std::string_view fields;
  std::optional<StoreVerb> verb;  // absent: not for the store, which has no such result
  ReplyShape reply = ReplyShape::kNone;
};

inline constexpr std::array kRequestKinds = {
    RequestKind{Opcode::kValidate, "i", {}},
    RequestKind{Opcode::kSet, "kv", StoreVerb::kSet, ReplyShape::kNone},
    RequestKind{Opcode::kCompareSet, "kvv", StoreVerb::kCompareSet, ReplyShape::kValues},
    RequestKind{Opcode::kGet, "k", StoreVerb::kGet, ReplyShape::kValues},
    RequestKind{Opcode::kAdd, "kn", StoreVerb::kAdd, ReplyShape::kNumber},
    RequestKind{Opcode::kCheck, "*k", StoreVerb::kCheck, ReplyShape::kByte},
    RequestKind{Opcode::kWait, "*k", StoreVerb::kWait, ReplyShape::kByte},
    RequestKind{Opcode::kNumKeys, "", StoreVerb::kNumKeys, ReplyShape::kNumber},
    RequestKind{Opcode::kDelete, "k", StoreVerb::kDelete, ReplyShape::kNumber},
    RequestKind{Opcode::kAppend, "kv", StoreVerb::kAppend, ReplyShape::kNone},
    RequestKind{Opcode::kMultiGet, "*k", StoreVerb::kMultiGet, ReplyShape::kValues},
    RequestKind{Opcode::kMultiSet, "*kv", StoreVerb::kMultiSet, ReplyShape::kNone},
    RequestKind{Opcode::kCancelWait, "", {}},
    RequestKind{Opcode::kPing, "i", {}},
    RequestKind{Opcode::kQueuePush, "kv", StoreVerb::kQueuePush, ReplyShape::kNone},
    RequestKind{Opcode::kQueuePop, "k", StoreVerb::kQueuePop, ReplyShape::kPopped},
    RequestKind{Opcode::kQueueLen, "k", StoreVerb::kQueueLen, ReplyShape::kNumber},
    RequestKind{Opcode::kListKeys, "", StoreVerb::kListKeys, ReplyShape::kKeys},
    // Adds 1 to the key, and waits until it is not below n.
    RequestKind{Opcode::kBarrier, "kn", StoreVerb::kWaitCount, ReplyShape::kByte},
    RequestKind{Opcode::kTerms, "inn", {}},
};

// Null: there is none.
constexpr const RequestKind* FindKind(Opcode opcode) {
  for (const RequestKind& kind : kRequestKinds) {
    if (kind.opcode == opcode) return &kind;
  }
  return nullptr;
}
constexpr const RequestKind* FindKind(StoreVerb verb) {
  for (const RequestKind& kind : kRequestKinds) {
    if (kind.verb == verb) return &kind;
  }
  return nullptr;
}

// Whether the operation has as many keys and values as its verb takes.
inline bool HasFieldsOfItsVerb(const StoreOp& op) {
  const RequestKind* const kind = FindKind(op.verb);
  if (kind == nullptr) return false;
  const std::string_view fields = kind->fields;
  const std::size_t times = fields.starts_with('*') ? op.keys.size() : 1;
  const auto count = [&](char field) {
    return times * static_cast<std::size_t>(std::count(fields.begin(), fields.end(), field));
  };
  return op.keys.size() == count('k') && op.values.size() == count('v');
}

// The field of kValidate, with which a client begins.
inline constexpr std::uint32_t kMagic = 0x3C85F7CE;

// Replies of one byte.
inline constexpr std::uint8_t kStopWaiting = 0;
inline constexpr std::uint8_t kWaitCancelled = 1;
inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;

}  // namespace ddprun::tcpstore
