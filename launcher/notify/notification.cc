// SPDX-License-Identifier: Apache-2.0
#include "launcher/notify/notification.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "launcher/base/limits.h"
#include "proto/json_text.h"
#include "proto/text.h"

namespace ddprun {
namespace {

using Form = NotifyTarget::Form;
using Json = nlohmann::ordered_json;

std::string Headline(const Notification& notification) {
  return absl::StrCat("run ", notification.run_id, " on ", notification.host, " ",
                      notification.event);
}

}  // namespace

std::string BodyOf(const NotifyTarget& target, const Notification& notification,
                   std::chrono::system_clock::time_point time) {
  const std::string text = absl::StrCat(Headline(notification), "\n", notification.text);
  switch (target.form) {
    case Form::kSlack:
      return JsonText(Json{{"text", CutText(text, kNotifyTextBytesMax)}});
    case Form::kDiscord:
      return JsonText(Json{{"content", CutText(text, kNotifyTextBytesMax)}});
    case Form::kNtfy:
      return CutText(text, kNotifyTextBytesMax);
    case Form::kJson:
    case Form::kProgram:
      break;
  }
  const auto known = [](const std::optional<int>& number) {
    return number.has_value() ? Json(*number) : Json(nullptr);
  };
  return JsonText(Json{
      {"version", 1},
      {"event", notification.event},
      {"run", notification.run_id},
      {"host", notification.host},
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromChrono(time), absl::UTCTimeZone())},
      {"text", CutText(notification.text, kNotifyTextBytesMax)},
      {"rank", known(notification.rank)},
      {"exit_code", known(notification.exit_code)}});
}

const char* ContentTypeOf(const NotifyTarget& target) {
  return target.form == Form::kNtfy ? "text/plain; charset=utf-8" : "application/json";
}

}  // namespace ddprun
