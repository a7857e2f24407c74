// SPDX-License-Identifier: Apache-2.0
// Ends a server of CivetWeb without delay. Its thread that takes connections looks for the end when
// one comes, and else every 2 s (SOCKET_TIMEOUT_QUANTUM in civetweb.c 1.15): for so long mg_stop()
// would hold up the end of a run.
#pragma once

#include <functional>
#include <string>

namespace ddprun {

// Calls `end`, and connects to the server meanwhile. `address`: one of this machine, as a number,
// of IPv6 in brackets; with another one the end takes its time.
void EndCivet(const std::string& address, int port, const std::function<void()>& end);

}  // namespace ddprun
