// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_command.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "launcher/ctl/ctl_options.h"
#include "launcher/ctl/logs_command.h"
#include "launcher/ctl/logs_text.h"
#include "launcher/ctl/status_command.h"
#include "launcher/ctl/status_options.h"
#include "launcher/ctl/status_watch.h"
#include "launcher/node/network.h"
#include "rendezvous/client/control_client.h"

namespace ddprun {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

using TokenVariable = decltype(TakeTokenVariable());

int Fail(const std::string& program, const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), std::string(status.message()).c_str());
  return exit_code;
}

int Show(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : kExitFailure;
}

// The client's certificate; none for a socket, where the kernel identifies the peer.
absl::StatusOr<Security> OpenSecurity(const ServiceAddress& service, const SecurityOptions& options,
                                      TokenVariable token) {
  if (!service.socket.empty()) return Security();
  prctl(PR_SET_DUMPABLE, 0);
  return Security::Open(options, std::move(token), ReadVariable);
}

int ShowStatus(const std::vector<std::string>& arguments, const std::string& program,
               TokenVariable token) {
  auto parsed = ParseStatusOptions(arguments, ReadVariable);
  if (!parsed.ok()) return Fail(program, parsed.status(), kExitUsage);
  if (const auto* show = std::get_if<ShowText>(&*parsed)) return Show(show->text);
  const auto& options = std::get<StatusOptions>(*parsed);
  auto security = OpenSecurity(options.service, options.security, std::move(token));
  if (!security.ok()) return Fail(program, security.status(), kExitUsage);
  if (options.watch) {
    const auto channel = OpenServiceChannel(options.service, *security, options.run_id, "status");
    if (!channel.ok()) return Fail(program, channel.status(), kExitFailure);
    return WatchStatus(options, *channel);
  }
  const absl::StatusOr<std::string> text = AskForStatus(options, *security);
  if (!text.ok()) return Fail(program, text.status(), kExitFailure);
  return Show(*text);
}

absl::StatusOr<std::string> Ask(const CtlOptions& options,
                                const std::shared_ptr<ServiceChannel>& channel) {
  const std::string by = HostName();
  switch (options.command) {
    case CtlOptions::Command::kStop:
      return StopRun(channel, options.run_id, {.by = by, .now = options.now}, options.timeout);
    case CtlOptions::Command::kLogs:
      break;  // ShowLogs()
    case CtlOptions::Command::kDrain:
      return DrainNode(channel, options.run_id,
                       {.by = by,
                        .node = options.node,
                        .force = options.force,
                        .at_next_round = options.at_next_round,
                        .dry_run = options.dry_run},
                       options.timeout);
  }
  return absl::InternalError("no such command");
}

// The subscription begins before the run is stopped: a service that ends with the run sends the end
// first.
int StopAndWait(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
                const std::string& program) {
  absl::StatusOr<EndWatch> watch = WatchEnd(options, channel);
  if (!watch.ok()) return Fail(program, watch.status(), kExitFailure);
  const absl::StatusOr<std::string> sentence = Ask(options, channel);
  if (!sentence.ok()) return Fail(program, sentence.status(), kExitFailure);
  if (Show(absl::StrCat(*sentence, "\n")) != 0) return kExitFailure;
  const absl::StatusOr<RunOver> end = WaitForEnd(options, *watch);
  if (!end.ok()) return Fail(program, end.status(), kExitFailure);
  Show(absl::StrCat(EndSentence(watch->run_id, *end), "\n"));
  return end->verdict ? end->verdict->exit_code : kExitFailure;
}

// What its nodes would run is in ddprun, so that is what looks at them; it lies beside this
// program.
int BecomeDoctor(const std::vector<std::string>& arguments, const std::string& program) {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string path = (own.parent_path() / "ddprun").string();
  std::vector<std::string> words = arguments;
  std::vector<char*> argv = {path.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  return Fail(program,
              absl::NotFoundError(absl::StrCat("cannot execute ", path, ": ", std::strerror(errno),
                                               "; install ddprun beside ddpctl")),
              kExitFailure);
}

}  // namespace

int RunCtl(const std::vector<std::string>& arguments, const std::string& program) {
  if (!arguments.empty() && arguments.front() == "doctor") return BecomeDoctor(arguments, program);
  // First of all: from here on the environment does not have the secret.
  TokenVariable token = TakeTokenVariable();
  if (!arguments.empty() && arguments.front() == "status") {
    return ShowStatus({arguments.begin() + 1, arguments.end()}, program, std::move(token));
  }
  auto parsed = ParseCtlOptions(arguments, ReadVariable);
  if (!parsed.ok()) return Fail(program, parsed.status(), kExitUsage);
  if (const auto* show = std::get_if<ShowText>(&*parsed)) return Show(show->text);
  const auto& options = std::get<CtlOptions>(*parsed);
  auto security = OpenSecurity(options.service, options.security, std::move(token));
  if (!security.ok()) return Fail(program, security.status(), kExitUsage);
  auto channel = OpenServiceChannel(options.service, *security, options.run_id, "ctl");
  if (!channel.ok()) return Fail(program, channel.status(), kExitFailure);
  if (options.command == CtlOptions::Command::kLogs) return ShowLogs(options, *channel);
  if (options.wait) return StopAndWait(options, *channel, program);
  const absl::StatusOr<std::string> sentence = Ask(options, *channel);
  if (!sentence.ok()) return Fail(program, sentence.status(), kExitFailure);
  return Show(absl::StrCat(*sentence, "\n"));
}

int StatusCommand(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "status");
  return RunCtl(arguments, "ddprun");
}

}  // namespace ddprun
