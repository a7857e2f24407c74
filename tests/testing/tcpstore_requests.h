// SPDX-License-Identifier: Apache-2.0
// What a client of torch's TCPStore writes, field by field.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/version.h"

namespace ddprun::tcpstore {

// What a client begins with: opcode 0 and the magic number.
inline const std::string kHello("\x00\xce\xf7\x85\x3c", 5);

inline std::string U64(std::uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
// A key or a value.
inline std::string Text(const std::string& text) { return U64(text.size()) + text; }

template <typename... Fields>
std::string Request(int opcode, const Fields&... fields) {
  return absl::StrCat(std::string(1, static_cast<char>(opcode)), fields...);
}

// What our own workers write before each request.
inline std::string Terms(std::uint64_t round, std::int64_t timeout_ms = 0,
                         std::uint32_t version = kProtocolVersion) {
  return absl::StrCat("\x80", std::string(reinterpret_cast<const char*>(&version), sizeof version),
                      U64(round), U64(static_cast<std::uint64_t>(timeout_ms)));
}

}  // namespace ddprun::tcpstore
