// SPDX-License-Identifier: Apache-2.0
// What systemd does with a user's processes when the user logs out, and a scope that outlives the
// login. Does nothing where there is no systemd.
#pragma once

#include <sys/types.h>

#include <string>

#include "rendezvous/security/token.h"

namespace ddprun {

// For the calling process and those that it starts. Where the user lingers (loginctl
// enable-linger), puts it into a scope of the user's own manager, which then goes on without a
// login; without lingering that manager would end with the last login, and the process stays where
// it is, where only KillUserProcesses=yes ends it. Empty: a logout ends nothing. Else one sentence
// on what a logout would do. Takes kLoginSessionTimeout at most. While the process has one thread.
std::string OutliveLogin(const std::string& run_name, const GetVariable& get_variable);

}  // namespace ddprun
