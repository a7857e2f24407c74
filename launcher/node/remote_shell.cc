// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/remote_shell.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

std::string FirstWordsLastPart(const std::string& command) {
  const std::vector<std::string> words = absl::StrSplit(command, ' ', absl::SkipEmpty());
  if (words.empty()) return "";
  return words.front().substr(words.front().rfind('/') + 1);
}

std::vector<std::string> SshOptions() {
  return {"-T", "-x",
          "-o", "BatchMode=yes",
          "-o", absl::StrCat("ConnectTimeout=", kSshConnectTimeout.count()),
          "-o", absl::StrCat("ServerAliveInterval=", kSshAliveInterval.count()),
          "-o", absl::StrCat("ServerAliveCountMax=", kSshAliveCount),
          "-o", "ControlPath=none"};
}

}  // namespace

std::vector<std::string> ThroughShell(const std::string& command) {
  return {"/bin/sh", "-c", absl::StrCat("exec ", command, " \"$@\""), "ddprun"};
}

RemoteShell RemoteShellTo(const std::string& host, const std::string& rsh) {
  RemoteShell shell;
  shell.is_ssh = rsh.empty() || FirstWordsLastPart(rsh) == "ssh";
  shell.argv = rsh.empty() ? std::vector<std::string>{"ssh"} : ThroughShell(rsh);
  // ssh uses the first value of an option: the user's.
  const std::vector<std::string> options = shell.is_ssh ? SshOptions() : std::vector<std::string>();
  shell.argv.insert(shell.argv.end(), options.begin(), options.end());
  shell.argv.push_back(host);
  return shell;
}

}  // namespace ddprun
