// SPDX-License-Identifier: Apache-2.0
// JSON as text. Names of files, of hosts and of classes may have any bytes, and dump() throws on
// what is not UTF-8.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace ddprun {

// Bytes that are not UTF-8 become U+FFFD. `indent`: spaces a level; -1: all on one line.
template <typename Json>
std::string JsonText(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// Text that is UTF-8 as it is; else with each byte that is not ASCII as "\xe9", so that different
// names stay different.
inline std::string Utf8Name(const std::string& bytes) {
  try {
    static_cast<void>(nlohmann::json(bytes).dump());
    return bytes;
  } catch (const nlohmann::json::type_error&) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string name;
    for (const char byte : bytes) {
      const auto value = static_cast<unsigned char>(byte);
      if (value < 0x80) {
        name += byte;
        continue;
      }
      name += "\\x";
      name += kDigits[value >> 4];
      name += kDigits[value & 15];
    }
    return name;
  }
}

}  // namespace ddprun
