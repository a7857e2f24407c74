// SPDX-License-Identifier: Apache-2.0
// The value of --notify. Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace ddprun {

struct NotifyTarget {
  enum class Form { kProgram, kJson, kSlack, kDiscord, kNtfy };
  Form form = Form::kProgram;
  std::string address;  // a URL, or a command for sh -c
};

// "https://hooks.slack.com/...", "https://discord.com/api/webhooks/...", "https://ntfy.sh/TOPIC":
// in the form of these services; of another server with "slack+", "discord+" or "ntfy+" before it.
// Any other URL gets JSON; what is no URL is a command. INVALID_ARGUMENT: one sentence, without
// what follows the host, which is a secret of most services.
absl::StatusOr<NotifyTarget> ParseNotifyTarget(const std::string& text);

// For people: where it goes, without what may be secret.
std::string NameOf(const NotifyTarget& target);

}  // namespace ddprun
