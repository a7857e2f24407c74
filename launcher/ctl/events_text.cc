// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/events_text.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "rendezvous/base/printable.h"

namespace ddprun {

using Json = nlohmann::ordered_json;

std::optional<Json> ParseEvent(const std::string& line) {
  Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object() || !event["event"].is_string()) return std::nullopt;
  return event;
}

std::string EventWords(const Json& event) {
  std::string text = event.value("text", "");
  if (text.empty()) {  // one of an agent
    text = event.value("event", "");
    if (text == "round.broken") text = absl::StrCat("round ", event.value("round", 0), " ends");
    if (const std::string reason = event.value("reason", ""); !reason.empty())
      absl::StrAppend(&text, ": ", reason);
    if (event.contains("rank")) absl::StrAppend(&text, ", rank ", event["rank"].dump());
  }
  return Printable(text);
}

std::string EventText(const Json& event) {
  std::string when = event.value("time", "");
  absl::Time time;
  if (absl::ParseTime(absl::RFC3339_full, when, &time, nullptr))
    when = absl::FormatTime("%Y-%m-%d %H:%M:%E1S", time, absl::LocalTimeZone());
  return absl::StrCat(Printable(when), "  ", EventWords(event));
}

}  // namespace ddprun
