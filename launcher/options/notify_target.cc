// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/notify_target.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

using Form = NotifyTarget::Form;

constexpr std::pair<absl::string_view, Form> kPrefixes[] = {
    {"slack+", Form::kSlack}, {"discord+", Form::kDiscord}, {"ntfy+", Form::kNtfy}};
constexpr std::pair<absl::string_view, Form> kServices[] = {
    {"https://hooks.slack.com/", Form::kSlack},
    {"https://discord.com/api/webhooks/", Form::kDiscord},
    {"https://discordapp.com/api/webhooks/", Form::kDiscord},
    {"https://ntfy.sh/", Form::kNtfy}};

bool IsUrl(absl::string_view text) {
  return absl::StartsWith(text, "https://") || absl::StartsWith(text, "http://");
}

}  // namespace

absl::StatusOr<NotifyTarget> ParseNotifyTarget(const std::string& text) {
  absl::string_view rest = text;
  for (const auto& [prefix, form] : kPrefixes) {
    if (!absl::ConsumePrefix(&rest, prefix)) continue;
    if (IsUrl(rest)) return NotifyTarget{form, std::string(rest)};
    return absl::InvalidArgumentError(
        absl::StrCat("--notify needs a URL after '", prefix, "', as in ", prefix, "https://..."));
  }
  for (const auto& [service, form] : kServices) {
    if (absl::StartsWith(text, service)) return NotifyTarget{form, text};
  }
  if (IsUrl(text)) return NotifyTarget{Form::kJson, text};
  const std::size_t scheme = text.find("://");
  if (scheme != std::string::npos && text.find_first_of(" /") > scheme) {
    return absl::InvalidArgumentError(absl::StrCat("--notify does not know ",
                                                   text.substr(0, scheme),
                                                   "://; give an http:// or https:// URL, or a "
                                                   "command"));
  }
  if (text.empty()) return absl::InvalidArgumentError("--notify needs a URL or a command");
  return NotifyTarget{Form::kProgram, text};
}

std::string NameOf(const NotifyTarget& target) {
  if (target.form == Form::kProgram) return absl::StrCat("'", target.address, "'");
  const std::size_t host = target.address.find("://") + 3;
  const std::size_t user = target.address.find('@', host);
  const std::size_t end = target.address.find_first_of("/?", host);
  const std::size_t begin = user != std::string::npos && user < end ? user + 1 : host;
  return target.address.substr(begin, end == std::string::npos ? end : end - begin);
}

}  // namespace ddprun
