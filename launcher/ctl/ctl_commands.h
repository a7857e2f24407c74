// SPDX-License-Identifier: Apache-2.0
// The commands of ddpctl as a table: names, help and flags. Of ctl_options.cc alone. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/ctl/ctl_options.h"

namespace ddprun {

// What flags set: the options, and what these are made from.
struct GivenToCtl : CtlOptions {
  std::optional<Endpoint> endpoint;
  std::string master_addr;
  int master_port = kPortDefault;
  std::string socket;
  bool only_stdout = false;
  bool only_stderr = false;
};

using CtlFlag = FlagOf<GivenToCtl>;

struct CommandInfo {
  const char* name;
  CtlOptions::Command command;
  const char* program;     // that users call it by
  const char* positional;  // for --help; empty: none
  const char* summary;     // for the overview
  const char* help;
  absl::Span<const CtlFlag> flags;
  bool asks_service = true;
};

// Of the commands that ask a service.
absl::Span<const CtlFlag> ServiceFlags();

const std::vector<CommandInfo>& Commands();

}  // namespace ddprun
