// SPDX-License-Identifier: Apache-2.0
#include "launcher/status_command.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "launcher/command.h"
#include "launcher/network.h"
#include "launcher/status_text.h"
#include "rendezvous/status_client.h"

namespace ddprun {

absl::StatusOr<std::string> AskForStatus(const StatusOptions& options, const Security& security) {
  // A certificate as a node has one, of nobody in any run.
  auto credentials = security.ForNode(absl::StrCat("status-", HostName(), "-", getpid()));
  if (!credentials.ok()) return credentials.status();
  const std::string service = JoinHostPort(options.service.host, options.service.port);
  const absl::StatusOr<ServiceStatus> status =
      GetStatus(MakeServiceChannel(service, *std::move(credentials), options.service.host),
                options.run_id, options.timeout);
  if (!status.ok()) return status.status();
  return options.json ? StatusJson(*status, service) : StatusText(*status, service);
}

int StatusCommand(const std::vector<std::string>& arguments) {
  auto token_variable = TakeTokenVariable();
  auto parsed = ParseStatusOptions(arguments, ReadVariable);
  if (!parsed.ok()) return Fail(parsed.status(), kExitUsage);
  if (const auto* show = std::get_if<ShowText>(&*parsed)) return Show(show->text);
  const auto& options = std::get<StatusOptions>(*parsed);
  prctl(PR_SET_DUMPABLE, 0);
  auto security = Security::Open(options.security, std::move(token_variable), ReadVariable);
  if (!security.ok()) return Fail(security.status(), kExitUsage);
  const absl::StatusOr<std::string> text = AskForStatus(options, *security);
  if (!text.ok()) return Fail(text.status(), 1);
  return Show(*text);
}

}  // namespace ddprun
