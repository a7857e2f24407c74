// SPDX-License-Identifier: Apache-2.0
#include "worker/library/files/bounded_json.h"

#include <set>
#include <string>
#include <vector>

namespace ddprun {

using Json = nlohmann::json;

Json ParseBoundedJson(std::string_view text, JsonLimits limits) {
  std::vector<std::set<std::string>> keys;  // of the objects around the current value
  std::size_t values = 0;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (++values > limits.values)
      throw JsonError("has more than " + std::to_string(limits.values) + " values");
    const bool begins =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (begins && static_cast<std::size_t>(depth) >= limits.depth)
      throw JsonError("is nested deeper than " + std::to_string(limits.depth) + " levels");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys.back().insert(value.get_ref<const std::string&>()).second)
      throw JsonError("has '" + value.get<std::string>() + "' twice");
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception&) {
    throw JsonError("is not JSON");
  }
}

}  // namespace ddprun
