// SPDX-License-Identifier: Apache-2.0
// How a command is started on another host. Pure.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

// A user's command as the beginning of an argv: a shell parses it.
std::vector<std::string> ThroughShell(const std::string& command);

struct RemoteShell {
  std::vector<std::string> argv;  // up to the host; the command's words follow
  bool is_ssh = true;
};

// ssh, or what `rsh` names (--rsh). ssh never prompts (there may be no user, or a hundred prompts
// at once), detects a dead connection within kSshAliveInterval * kSshAliveCount, and does not share
// a connection that another command may end.
RemoteShell RemoteShellTo(const std::string& host, const std::string& rsh);

}  // namespace ddprun
