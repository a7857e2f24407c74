// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

namespace ddprun {

// A value of two bytes of text takes some 100 bytes of memory: the number of values is what bounds
// the memory that a text can take. A level of depth is an object or an array.
struct JsonLimits {
  std::size_t values = 2'000'000;
  std::size_t depth = 3;
};

// A clause without a subject: "is not JSON".
struct JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Reads JSON that anyone may have written. Throws JsonError if it is not JSON, goes beyond the
// limits, or has a key twice in one object, of which one would be hidden.
nlohmann::json ParseBoundedJson(std::string_view text, JsonLimits limits = {});

}  // namespace ddprun
