// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_advice.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "proto/text.h"
#include "proto/version.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

constexpr int kSshFailed = 255;

std::string HowEnded(const Outcome& outcome) {
  return std::visit(
      Overloaded{[](const Exited& end) { return absl::StrCat("ended with exit code ", end.code); },
                 [](const Signaled& end) {
                   return absl::StrCat("was killed by ", SignalName(end.signal));
                 },
                 [](const SpawnFailed& end) { return end.message; }},
      outcome);
}

bool IsExit(const Outcome& outcome, int code) { return outcome == Outcome(Exited{code}); }

// The last line that is not empty.
std::string LastWord(const std::vector<std::string>& words) {
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    const absl::string_view text = absl::StripPrefix(absl::StripAsciiWhitespace(*word), "ddprun: ");
    if (!text.empty()) return std::string(text);
  }
  return "";
}

struct Advice {
  const char* said;
  const char* next;  // HOST is replaced by its name
};

// The first match decides: an error above causes those below it.
constexpr Advice kSshAdvice[] = {
    {"REMOTE HOST IDENTIFICATION HAS CHANGED",
     "its key is not the one known here: if the machine is a new one, `ssh-keygen -R HOST`, then "
     "`ssh HOST` once by hand"},
    {"Host key verification failed",
     "its key is not known here: `ssh HOST` once by hand to see and accept it"},
    {"Permission denied",
     "it wants a password or a key that ssh does not have here, and ssh cannot prompt: "
     "`ssh-copy-id HOST`, or `ssh-add` if the key has a passphrase, until `ssh HOST true` works "
     "without a question"},
    {"Too many authentication failures",
     "name the right key in ~/.ssh/config (IdentitiesOnly yes)"},
    {"Could not resolve hostname", "check the name, or give an address"},
    {"Connection timed out", "check that the host is up and that no firewall is in between"},
    {"No route to host", "check that the host is up and that no firewall is in between"},
    {"Network is unreachable", "check that the host is up and that no firewall is in between"},
    {"Connection refused",
     "no ssh server listens there: start one, or give its port in ~/.ssh/config or with --rsh "
     "'ssh -p PORT'"},
};

const Advice* FindAdvice(const std::vector<std::string>& words) {
  for (const Advice& advice : kSshAdvice) {
    for (const std::string& word : words) {
      if (absl::StrContains(word, advice.said)) return &advice;
    }
  }
  return nullptr;
}

std::string Saying(const std::vector<std::string>& words) {
  const std::string last = LastWord(words);
  return last.empty() ? "" : absl::StrCat(": ", last);
}

// True if the message is of the local shell that executes the user's --rsh (ThroughShell in
// hosts_plan.cc), and not of a shell on the host.
bool IsOfOwnShell(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return absl::StartsWith(word, "ddprun: ") && absl::StrContains(word, "exec: ");
  });
}

const char* TransportProgram(TransportKind kind) {
  return kind == TransportKind::kDirect ? "ddprun"
         : kind == TransportKind::kRsh  ? "the --rsh command"
                                        : TransportName(kind);
}

}  // namespace

std::string WhyNotStarted(const std::string& host, const Transport& transport, std::size_t attempt,
                          const Outcome& outcome, const std::vector<std::string>& words) {
  const TransportKind kind = transport.kind;
  if (std::holds_alternative<SpawnFailed>(outcome)) {
    return absl::StrCat(host, ": ", HowEnded(outcome));
  }
  const bool by_shell = kind == TransportKind::kRsh || kind == TransportKind::kSsh;
  if (IsExit(outcome, 127) && by_shell && IsOfOwnShell(words)) {
    return absl::StrCat(host, ": the --rsh command is not there on this machine", Saying(words),
                        "; check its name, or give its path");
  }
  if (IsExit(outcome, 127) && !transport.launch_agent.empty()) {
    return absl::StrCat(host, " does not find what --launch-agent names, '", transport.launch_agent,
                        "'", Saying(words),
                        "; give the path of ddprun there, or leave the flag out if the path is the "
                        "same as here or ddprun is in the PATH there");
  }
  if (IsExit(outcome, 127)) {
    return absl::StrCat(host,
                        " has no ddprun, neither at the path it has here nor in the PATH that ",
                        TransportProgram(kind), " finds there", Saying(words),
                        "; install it there, or name it with --launch-agent");
  }
  if (kind == TransportKind::kSsh && IsExit(outcome, kSshFailed)) {
    const Advice* advice = FindAdvice(words);
    if (advice != nullptr) {
      return absl::StrCat(host, " cannot be reached by ssh", Saying(words), "; ",
                          absl::StrReplaceAll(advice->next, {{"HOST", host}}));
    }
    return absl::StrCat(host, " cannot be reached by ssh", Saying(words), "; try `ssh ", host,
                        " true` by hand");
  }
  return absl::StrCat(host, ": ", TransportProgram(kind), " ", HowEnded(outcome),
                      " before ddprun there said a word", Saying(words), "; try it by hand: ",
                      absl::StrJoin(transport.commands[attempt], " ",
                                    [](std::string* out, const std::string& word) {
                                      absl::StrAppend(out, ShellQuote(word));
                                    }),
                      " (another version of ddprun does not know --control-pipe)");
}

std::string WhyLost(const std::string& host, TransportKind kind, const Outcome& outcome,
                    const std::vector<std::string>& words) {
  if (kind == TransportKind::kSsh && IsExit(outcome, kSshFailed)) {
    return absl::StrCat("the connection to ", host, " ended", Saying(words),
                        "; its workers end by themselves within a second of noticing; check the "
                        "network and the machine");
  }
  const bool by_ssh = kind == TransportKind::kSsh && std::holds_alternative<Exited>(outcome);
  if (kind == TransportKind::kDirect || by_ssh) {
    return absl::StrCat("ddprun on ", host, " ", HowEnded(outcome), Saying(words));
  }
  return absl::StrCat("ddprun on ", host, ", or ", TransportProgram(kind), " to it, ",
                      HowEnded(outcome), Saying(words));
}

std::string WhyUnproven(const std::string& host, const std::vector<std::string>& words) {
  return absl::StrCat("ddprun on ", host,
                      " ended with exit code 0 and did not report that the run had finished",
                      Saying(words), "; check what --launch-agent, --rsh or ssh starts there");
}

std::string WhyRefused(const std::string& host, const Hello& hello) {
  return absl::StrCat(host, " has ddprun ", Printable(hello.version), " (protocol ", hello.protocol,
                      ") and this is ", kSoftwareVersion, " (protocol ", kProtocolVersion,
                      "); install the same there, or name it with --launch-agent");
}

int NodeExitCode(TransportKind kind, const Outcome& outcome) {
  const bool of_transport =
      (kind == TransportKind::kSsh && IsExit(outcome, kSshFailed)) ||
      (kind != TransportKind::kDirect && std::holds_alternative<Signaled>(outcome));
  return of_transport ? 1 : ExitCodeOf(outcome);
}

}  // namespace ddprun
